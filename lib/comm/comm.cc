// The world of one rank, and whether a launcher started this process.
#include "comm/comm.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>

#include "comm/self.h"

namespace rr::comm {
namespace {

struct Done final : Pending {
  void wait() override {}
};

// A group of one. A message to itself is kept until it is received.
class SelfCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  void all_reduce_sum(std::span<float>) override {}
  void all_reduce_sum(std::span<double>) override {}
  void all_reduce_max(std::span<double>) override {}
  void reduce_scatter_sum(std::span<const float> in, std::span<float> out) override {
    copy(std::as_bytes(in), std::as_writable_bytes(out));
  }
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override {
    copy(in, out);
  }
  void all_to_all(std::span<const std::byte> in, std::span<const std::int64_t> counts_in,
                  std::span<std::byte> out, std::span<const std::int64_t> counts_out) override {
    check_counts(counts_in, in.size(), 1);
    check_counts(counts_out, out.size(), 1);
    copy(in, out);
  }
  void broadcast(std::span<std::byte>, int root) override { check_member(root, 1); }
  void barrier() override {}

  std::unique_ptr<Pending> send(std::span<const std::byte> data, int peer, int tag) override {
    check_member(peer, 1);
    messages_[tag].emplace_back(data.begin(), data.end());
    return std::make_unique<Done>();
  }
  void receive(std::span<std::byte> data, int peer, int tag) override {
    check_member(peer, 1);
    std::deque<std::vector<std::byte>>& waiting = messages_[tag];
    RR_CHECK(!waiting.empty(), fmt::format("nothing was sent to this only rank with tag {}", tag));
    copy(waiting.front(), data);
    waiting.pop_front();
  }

 private:
  static void copy(std::span<const std::byte> in, std::span<std::byte> out) {
    RR_CHECK(in.size() == out.size(), fmt::format("{} bytes into {}", in.size(), out.size()));
    if (!in.empty() && in.data() != out.data()) std::memmove(out.data(), in.data(), in.size());
  }

  std::map<int, std::deque<std::vector<std::byte>>> messages_;
};

class SelfWorld final : public World {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }

  std::unique_ptr<Communicator> make_group(const std::vector<int>& members) override {
    RR_CHECK(members == std::vector<int>{0},
             fmt::format("a group of {} ranks in a world of one", members.size()));
    return make_self_group();
  }
  [[noreturn]] void abort(int code) override {
    flush_output();
    std::_Exit(code);
  }
};

}  // namespace

void check_counts(std::span<const std::int64_t> counts, std::size_t bytes, int size) {
  RR_CHECK(std::ssize(counts) == size,
           fmt::format("{} counts for {} members", counts.size(), size));
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    RR_CHECK(count >= 0, fmt::format("a count of {}", count));
    sum += count;
  }
  RR_CHECK(sum == static_cast<std::int64_t>(bytes),
           fmt::format("counts add up to {}, the buffer has {} bytes", sum, bytes));
}

void check_member(int member, int size) {
  RR_CHECK(member >= 0 && member < size, fmt::format("member {} of a group of {}", member, size));
}

void flush_output() {
  std::cout.flush();
  std::fflush(nullptr);
}

std::unique_ptr<Communicator> make_self_group() { return std::make_unique<SelfCommunicator>(); }

bool launched() {
  // PMIX: mpirun of Open MPI 4 and later, prte, srun --mpi=pmix. OMPI: older mpirun. PMI: MPICH's
  // launchers and srun --mpi=pmi2. SLURM_PROCID alone says nothing: a batch script has it too.
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* value = std::getenv(name);
    if (value && *value) return true;
  }
  return false;
}

std::unique_ptr<World> make_self_world() { return std::make_unique<SelfWorld>(); }

}  // namespace rr::comm
