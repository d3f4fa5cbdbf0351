// The MPI back end: bytes travel as point-to-point messages only; sums are made here.
//
// Every wait tests, yields and then sleeps in growing steps instead of blocking inside MPI, whose
// waits spin: ranks may share cores with each other and with our worker threads.
#define OMPI_SKIP_MPICXX 1  // the C interface only: no C++ bindings to link
#define MPICH_SKIP_MPICXX 1
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "base/log.h"
#include "comm/comm.h"
#include "comm/ordered_sum.h"
#include "comm/self.h"

namespace rr::comm {
namespace {

constexpr int kCollectiveTag = 0;
constexpr int kFirstUserTag = 1;
constexpr std::size_t kDirectBytes = 16 * 1024;          // all-reduce: one round up to here
constexpr std::size_t kScratchBytes = 16 * 1024 * 1024;  // parts that wait to be summed

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(fmt::format("MPI: {} failed: {}", what, text));
}

// Yields while the answer may come at once or bytes may be flowing, then sleeps for about an eighth
// of the time it took so far, 1 ms at most. Without single-copy transfers (as in most containers)
// bytes flow only while both sides look, some 100 kB a time: a sleep would cost what it lasts.
class Patience {
 public:
  // `bytes`: how much may be flowing.
  explicit Patience(std::int64_t bytes)
      : yield_until_(start_ + kReply + std::min(std::chrono::nanoseconds(bytes), kFlow)) {}

  void pause() {
    const auto now = std::chrono::steady_clock::now();
    if (now < yield_until_) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>((now - start_) / 8, kNap));
    }
  }

 private:
  static constexpr std::chrono::nanoseconds kReply = std::chrono::microseconds(100);
  static constexpr std::chrono::nanoseconds kFlow = std::chrono::milliseconds(10);  // at 1 GB/s
  static constexpr std::chrono::nanoseconds kNap = std::chrono::milliseconds(1);
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point yield_until_;
};

// Messages under way between this rank and the others of one communicator.
class Exchange {
 public:
  Exchange(MPI_Comm comm, std::int64_t piece_bytes) : comm_(comm), piece_(piece_bytes) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() {
    for (MPI_Request& request : requests_) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }

  // An empty message is still one message.
  void send(std::span<const std::byte> data, int peer, int tag) {
    for_pieces(data.size(), [&](std::size_t begin, int bytes) {
      check_mpi(MPI_Isend(data.data() + begin, bytes, MPI_BYTE, peer, tag, comm_, add(-1)),
                "MPI_Isend");
    });
  }
  void receive(std::span<std::byte> data, int peer, int tag) {
    for_pieces(data.size(), [&](std::size_t begin, int bytes) {
      check_mpi(MPI_Irecv(data.data() + begin, bytes, MPI_BYTE, peer, tag, comm_, add(bytes)),
                "MPI_Irecv");
    });
  }

  void wait() {
    // Not MPI_Testall over everything again and again: with many pieces that is quadratic.
    std::size_t first = 0;
    Patience patience(bytes_);
    while (first < requests_.size()) {
      int done = 0;
      MPI_Status status;
      check_mpi(MPI_Test(&requests_[first], &done, &status), "a message");
      if (!done) {
        patience.pause();
        continue;
      }
      check_length(status, expected_[first]);
      ++first;
      patience = Patience(bytes_);
    }
    requests_.clear();
    expected_.clear();
    bytes_ = 0;
  }

 private:
  template <class Call>
  void for_pieces(std::size_t bytes, const Call& call) {
    const std::size_t limit = static_cast<std::size_t>(piece_);
    std::size_t begin = 0;
    do {
      const std::size_t length = std::min(limit, bytes - begin);
      call(begin, static_cast<int>(length));
      bytes_ += static_cast<std::int64_t>(length);
      begin += length;
    } while (begin < bytes);
  }

  // Requests of a vector may move while MPI works on them: only their handles do.
  MPI_Request* add(int expected) {
    requests_.push_back(MPI_REQUEST_NULL);
    expected_.push_back(expected);
    return &requests_.back();
  }

  static void check_length(const MPI_Status& status, int expected) {
    if (expected < 0) return;
    int bytes = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    if (bytes != expected) {
      throw Error(fmt::format("MPI: member {} sent {} bytes where {} were expected",
                              status.MPI_SOURCE, bytes, expected));
    }
  }

  MPI_Comm comm_;
  std::int64_t piece_;
  std::vector<MPI_Request> requests_;
  std::vector<int> expected_;  // bytes; -1: a send
  std::int64_t bytes_ = 0;     // of all requests
};

class MpiPending final : public Pending {
 public:
  MpiPending(MPI_Comm comm, std::int64_t piece, std::span<const std::byte> data, int peer, int tag)
      : exchange_(comm, piece) {
    exchange_.send(data, peer, tag);
  }
  ~MpiPending() override {
    try {
      exchange_.wait();
    } catch (const std::exception& error) {
      log_error(error.what());
    }
  }
  void wait() override { exchange_.wait(); }

 private:
  Exchange exchange_;
};

// Begin of part i of n nearly equal parts.
std::size_t part_begin(std::size_t count, int i, int n) {
  return count * static_cast<std::size_t>(i) / static_cast<std::size_t>(n);
}

class MpiCommunicator final : public Communicator {
 public:
  // Owns `comm`.
  MpiCommunicator(MPI_Comm comm, std::int64_t piece_bytes) : comm_(comm), piece_(piece_bytes) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiCommunicator() override {
    // Freeing is collective: after a failure the peers may never come.
    if (std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce_sum(std::span<float> data) override { all_reduce<Sum>(data); }
  void all_reduce_sum(std::span<double> data) override { all_reduce<Sum>(data); }
  void all_reduce_max(std::span<double> data) override { all_reduce<Max>(data); }
  void reduce_scatter_sum(std::span<const float> in, std::span<float> out) override;
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override;
  void all_to_all(std::span<const std::byte> in, std::span<const std::int64_t> counts_in,
                  std::span<std::byte> out, std::span<const std::int64_t> counts_out) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void barrier() override;
  std::unique_ptr<Pending> send(std::span<const std::byte> data, int peer, int tag) override;
  void receive(std::span<std::byte> data, int peer, int tag) override;

 private:
  template <class Op, class T>
  void all_reduce(std::span<T> data);
  template <class Op, class T>
  void reduce_parts(std::span<const T> in, std::span<T> out,
                    const std::vector<std::size_t>& begins);
  void gather_parts(std::span<std::byte> data, const std::vector<std::size_t>& begins);

  Exchange exchange() const { return Exchange(comm_, piece_); }
  // The others, nearest successor first, so that not everybody talks to member 0 at once.
  int successor(int distance) const { return (rank_ + distance) % size_; }
  int predecessor(int distance) const { return (rank_ + size_ - distance) % size_; }

  MPI_Comm comm_;
  std::int64_t piece_;
  int rank_ = 0, size_ = 1;
  std::vector<std::byte> scratch_;
};

// in: parts [begins[i], begins[i + 1]) for member i; out: the reduced part of this member. Goes
// through in rounds that bound the scratch; a round changes nothing but when bytes travel.
template <class Op, class T>
void MpiCommunicator::reduce_parts(std::span<const T> in, std::span<T> out,
                                   const std::vector<std::size_t>& begins) {
  const auto length = [&](int member) {
    const auto i = static_cast<std::size_t>(member);
    return begins[i + 1] - begins[i];
  };
  std::size_t longest = 0;
  for (int member = 0; member < size_; ++member) longest = std::max(longest, length(member));
  const std::size_t others = static_cast<std::size_t>(size_ - 1);
  const std::size_t round = std::min(
      longest,
      std::max<std::size_t>(1024, kScratchBytes / sizeof(T) / std::max<std::size_t>(others, 1)));
  scratch_.resize(std::max(scratch_.size(), others * round * sizeof(T)));
  T* scratch = reinterpret_cast<T*>(scratch_.data());
  const std::size_t mine = begins[static_cast<std::size_t>(rank_)];

  std::vector<const T*> parts(static_cast<std::size_t>(size_));
  for (std::size_t at = 0; at < longest; at += round) {
    const auto now = [&](int member) {
      return std::min(round, length(member) - std::min(at, length(member)));
    };
    const std::size_t own = now(rank_);
    Exchange messages = exchange();
    for (int distance = 1; distance < size_; ++distance) {
      const int from = predecessor(distance);
      T* place = scratch + static_cast<std::size_t>(distance - 1) * round;
      parts[static_cast<std::size_t>(from)] = place;
      if (own > 0) {
        messages.receive(std::as_writable_bytes(std::span(place, own)), from, kCollectiveTag);
      }
    }
    for (int distance = 1; distance < size_; ++distance) {
      const int to = successor(distance);
      const std::size_t count = now(to);
      if (count == 0) continue;
      messages.send(std::as_bytes(in.subspan(begins[static_cast<std::size_t>(to)] + at, count)), to,
                    kCollectiveTag);
    }
    parts[static_cast<std::size_t>(rank_)] = in.data() + mine + at;
    messages.wait();
    reduce_in_order<Op, T>(parts, out.data() + at, own);
  }
}

// data: member i's part is at [begins[i], begins[i + 1]); everybody's own part is in place.
void MpiCommunicator::gather_parts(std::span<std::byte> data,
                                   const std::vector<std::size_t>& begins) {
  const auto part = [&](int member) {
    const auto i = static_cast<std::size_t>(member);
    return data.subspan(begins[i], begins[i + 1] - begins[i]);
  };
  Exchange messages = exchange();
  for (int distance = 1; distance < size_; ++distance) {
    const int from = predecessor(distance);
    if (!part(from).empty()) messages.receive(part(from), from, kCollectiveTag);
  }
  for (int distance = 1; distance < size_; ++distance) {
    if (!part(rank_).empty()) messages.send(part(rank_), successor(distance), kCollectiveTag);
  }
  messages.wait();
}

template <class Op, class T>
void MpiCommunicator::all_reduce(std::span<T> data) {
  const std::size_t members = static_cast<std::size_t>(size_);
  if (data.size_bytes() <= kDirectBytes) {
    // Everybody gets everything and reduces it all: one round, the same bits.
    std::vector<T> all(data.size() * members);
    std::copy(data.begin(), data.end(), all.begin() + rank_ * std::ssize(data));
    all_gather(std::as_bytes(data), std::as_writable_bytes(std::span(all)));
    std::vector<const T*> parts(members);
    for (std::size_t i = 0; i < members; ++i) parts[i] = all.data() + i * data.size();
    reduce_in_order<Op, T>(parts, data.data(), data.size());
    return;
  }
  std::vector<std::size_t> begins;
  for (int i = 0; i <= size_; ++i) begins.push_back(part_begin(data.size(), i, size_));
  const std::size_t mine = begins[static_cast<std::size_t>(rank_)];
  const std::size_t count = begins[static_cast<std::size_t>(rank_) + 1] - mine;
  reduce_parts<Op, T>(data, data.subspan(mine, count), begins);
  for (std::size_t& begin : begins) begin *= sizeof(T);
  gather_parts(std::as_writable_bytes(data), begins);
}

void MpiCommunicator::reduce_scatter_sum(std::span<const float> in, std::span<float> out) {
  const std::size_t part = out.size();
  RR_CHECK(in.size() == part * static_cast<std::size_t>(size_),
           fmt::format("{} elements for {} parts of {}", in.size(), size_, part));
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(size_); ++i) begins.push_back(i * part);
  reduce_parts<Sum, float>(in, out, begins);
}

void MpiCommunicator::all_gather(std::span<const std::byte> in, std::span<std::byte> out) {
  RR_CHECK(out.size() == in.size() * static_cast<std::size_t>(size_),
           fmt::format("{} parts of {} bytes into {}", size_, in.size(), out.size()));
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(size_); ++i)
    begins.push_back(i * in.size());
  std::byte* own = out.data() + begins[static_cast<std::size_t>(rank_)];
  if (!in.empty() && in.data() != own) std::memcpy(own, in.data(), in.size());
  gather_parts(out, begins);
}

void MpiCommunicator::all_to_all(std::span<const std::byte> in,
                                 std::span<const std::int64_t> counts_in, std::span<std::byte> out,
                                 std::span<const std::int64_t> counts_out) {
  check_counts(counts_in, in.size(), size_);
  check_counts(counts_out, out.size(), size_);
  const auto part = [](auto data, std::span<const std::int64_t> counts, int member) {
    std::int64_t begin = 0;
    for (int i = 0; i < member; ++i) begin += counts[static_cast<std::size_t>(i)];
    return data.subspan(static_cast<std::size_t>(begin),
                        static_cast<std::size_t>(counts[static_cast<std::size_t>(member)]));
  };
  Exchange messages = exchange();
  for (int distance = 1; distance < size_; ++distance) {
    const std::span<std::byte> place = part(out, counts_out, predecessor(distance));
    if (!place.empty()) messages.receive(place, predecessor(distance), kCollectiveTag);
  }
  for (int distance = 1; distance < size_; ++distance) {
    const std::span<const std::byte> data = part(in, counts_in, successor(distance));
    if (!data.empty()) messages.send(data, successor(distance), kCollectiveTag);
  }
  const std::span<const std::byte> own = part(in, counts_in, rank_);
  const std::span<std::byte> place = part(out, counts_out, rank_);
  RR_CHECK(own.size() == place.size(),
           fmt::format("{} bytes to itself, {} from itself", own.size(), place.size()));
  if (!own.empty()) std::memcpy(place.data(), own.data(), own.size());
  messages.wait();
}

// A binomial tree: each member that has the data passes it on to the one half a tree away.
void MpiCommunicator::broadcast(std::span<std::byte> data, int root) {
  check_member(root, size_);
  if (data.empty()) return;
  const int place = (rank_ + size_ - root) % size_;  // 0: the root
  int reach = 1;
  while (reach < size_ && !(place & reach)) reach <<= 1;
  if (place != 0) {
    Exchange from_parent = exchange();
    from_parent.receive(data, (place - reach + root) % size_, kCollectiveTag);
    from_parent.wait();
  }
  Exchange to_children = exchange();
  for (int step = reach >> 1; step > 0; step >>= 1) {
    if (place + step < size_) to_children.send(data, (place + step + root) % size_, kCollectiveTag);
  }
  to_children.wait();
}

// Dissemination: after round k everybody knows of 2^(k + 1) members that they came.
void MpiCommunicator::barrier() {
  for (int distance = 1; distance < size_; distance *= 2) {
    std::byte in{}, out{};
    Exchange messages = exchange();
    messages.receive(std::span(&in, 1), predecessor(distance), kCollectiveTag);
    messages.send(std::span(&out, 1), successor(distance), kCollectiveTag);
    messages.wait();
  }
}

std::unique_ptr<Pending> MpiCommunicator::send(std::span<const std::byte> data, int peer, int tag) {
  check_member(peer, size_);
  return std::make_unique<MpiPending>(comm_, piece_, data, peer, kFirstUserTag + tag);
}

void MpiCommunicator::receive(std::span<std::byte> data, int peer, int tag) {
  check_member(peer, size_);
  Exchange messages = exchange();
  messages.receive(data, peer, kFirstUserTag + tag);
  messages.wait();
}

class MpiWorld final : public World {
 public:
  explicit MpiWorld(const Options& options);
  ~MpiWorld() override {
    // With an exception in flight the peers may wait elsewhere; the launcher ends the job.
    if (owns_mpi_ && std::uncaught_exceptions() == 0) MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  std::unique_ptr<Communicator> make_group(const std::vector<int>& members) override;
  [[noreturn]] void abort(int code) override {
    flush_output();
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

 private:
  Options options_;
  bool owns_mpi_ = false;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
};

MpiWorld::MpiWorld(const Options& options) : options_(options) {
  RR_CHECK(options.piece_bytes > 0 && options.piece_bytes <= 0x7fffffff,
           fmt::format("pieces of {} bytes", options.piece_bytes));
  int initialized = 0;
  check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  if (!initialized) {
    // For the few blocking calls of set-up and end; a launcher's own choice stands.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    int provided = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    owns_mpi_ = true;
    RR_CHECK(provided >= MPI_THREAD_MULTIPLE,
             "this MPI does not allow calls from several threads (MPI_THREAD_MULTIPLE)");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // inherited by what is split off
  }
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  MPI_Comm node;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  MPI_Comm_rank(node, &local_rank_);
  MPI_Comm_size(node, &local_size_);
  MPI_Comm_free(&node);
}

std::unique_ptr<Communicator> MpiWorld::make_group(const std::vector<int>& members) {
  const auto self = std::find(members.begin(), members.end(), rank_);
  RR_CHECK(self != members.end(), fmt::format("rank {} is not a member of its own group", rank_));
  MPI_Comm comm;
  // The first member names the group: groups of one call are disjoint.
  check_mpi(MPI_Comm_split(MPI_COMM_WORLD, members.front(),
                           static_cast<int>(self - members.begin()), &comm),
            "MPI_Comm_split");
  int size = 0;
  MPI_Comm_size(comm, &size);
  RR_CHECK(size == static_cast<int>(members.size()),
           fmt::format("rank {} names {} members, {} ranks name the same group", rank_,
                       members.size(), size));
  if (size == 1) {
    MPI_Comm_free(&comm);
    return make_self_group();
  }
  return std::make_unique<MpiCommunicator>(comm, options_.piece_bytes);
}

}  // namespace

std::unique_ptr<World> make_mpi_world(const Options& options) {
  return std::make_unique<MpiWorld>(options);
}

}  // namespace rr::comm
