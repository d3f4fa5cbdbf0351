// Groups of ranks and what they do together. MPI moves bytes; sums are ours: fp32, in rank order of
// the group, so the bits depend on neither the call, the count, nor the piece size.
//
// Every member of a group makes the same calls in the same order; a call may come from any one
// thread at a time per communicator. Counts are elements; a message longer than the piece limit
// goes in pieces. After an Error of a call the job can only be aborted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/base.h"
#include "plan/plan.h"

namespace rr::comm {

// A send under way. The buffer must stay as it is until wait() returned. The destructor waits.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // in the group
  virtual int size() const = 0;

  // data[i] = sum over members of data[i]. f32.
  virtual void all_reduce_sum(std::span<float> data) = 0;
  virtual void all_reduce_sum(std::span<double> data) = 0;
  virtual void all_reduce_max(std::span<double> data) = 0;
  // in: size() * out.size() elements; member i gets the sum of everybody's i-th part. `out` may be
  // the i-th part of `in` itself (in place). f32.
  virtual void reduce_scatter_sum(std::span<const float> in, std::span<float> out) = 0;
  // out: size() * in.size() bytes, member i's bytes at part i. `in` may be part rank() of `out`.
  virtual void all_gather(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  // Sends counts_in[i] bytes, packed in member order, to member i; receives counts_out[i] from i.
  virtual void all_to_all(std::span<const std::byte> in, std::span<const std::int64_t> counts_in,
                          std::span<std::byte> out, std::span<const std::int64_t> counts_out) = 0;
  // From member `root` to all.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  virtual void barrier() = 0;
  // Between two members, matched by (peer, tag), in order. send does not block; receive does.
  virtual std::unique_ptr<Pending> send(std::span<const std::byte> data, int peer, int tag) = 0;
  virtual void receive(std::span<std::byte> data, int peer, int tag) = 0;
};

struct Options {
  // Longest single MPI message: below MPI's int, and short enough that a wait sees it progress.
  std::int64_t piece_bytes = std::int64_t{4} << 20;
};

// The job. One object for the program's life; made before anything else of this room, and outlives
// its groups.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // on this node, from the shared-memory split
  virtual int local_size() const = 0;

  // Collective over all ranks of the world: each passes the members of its own group (world ranks,
  // in group order). A group of one needs no messages.
  virtual std::unique_ptr<Communicator> make_group(const std::vector<int>& members) = 0;

  // Ends the whole job now with `code`; never returns. For a rank that failed alone.
  [[noreturn]] virtual void abort(int code) = 0;
};

// True when a launcher (mpirun, srun) started this process; reads the environment only.
bool launched();

// One rank, no MPI call ever.
std::unique_ptr<World> make_self_world();
// MPI_Init_thread(MULTIPLE); the destructor finalizes, unless an exception is in flight. While one
// lives, another (with other options, for tests) shares its MPI. Throws Error in a build without
// MPI.
std::unique_ptr<World> make_mpi_world(const Options& options = {});

// The groups of a Plan for this rank, each with its own communicator. `data` and `expert_data` are
// for the comm stream; everything else for the main thread.
struct Groups {
  std::vector<std::unique_ptr<Communicator>> by_kind;  // [plan::kNumGroups]
  Communicator& operator[](plan::Group group) const { return *by_kind[static_cast<int>(group)]; }
};
Groups make_groups(World& world, const plan::Topology& topology);

}  // namespace rr::comm
