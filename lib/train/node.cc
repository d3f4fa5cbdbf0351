// Threads by affinity mask, CPU quota, ranks of the node and OMP_NUM_THREADS; memory by the limits.
#include "train/node.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "base/threads.h"
#include "train/narrate.h"
#include "train/train.h"

namespace rr::train {
namespace {

constexpr int kMostThreads = 512;

cpu_set_t mask_of(pid_t process) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(process, sizeof mask, &mask);
  return mask;
}

std::string host_name() {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  return host.data();
}

// This node and the cores this process may use, as one comparable number.
std::uint64_t host_and_mask() {
  const cpu_set_t mask = mask_of(0);
  std::string key = host_name();
  key.append(reinterpret_cast<const char*>(&mask), sizeof mask);
  return hash64(key);
}

// 0 when unset or no number of threads.
int wanted_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const int threads = text == nullptr ? 0 : std::atoi(text);
  return std::clamp(threads, 0, kMostThreads);
}

// "core 3", "cores 0-3,8".
std::string name_cores(const cpu_set_t& mask) {
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &mask)) continue;
    int last = core;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &mask)) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", core);
    if (last > core) text += fmt::format("-{}", last);
    core = last;
  }
  return (CPU_COUNT(&mask) == 1 ? "core " : "cores ") + text;
}

void warn(const comm::World& world, int threads, int share) {
  const int wanted = wanted_threads();
  if (wanted > share) {
    log_warning(fmt::format(
        "OMP_NUM_THREADS={} is more than the {} that this rank has cores for: threads wait for "
        "each other. Unset it, or use OMP_NUM_THREADS={}.",
        wanted, share, share));
  } else if (wanted > 0 && wanted < share) {
    log_warning(
        fmt::format("OMP_NUM_THREADS={} runs the offloaded optimizer on {} of {} cores: unset it.",
                    wanted, wanted, share));
  }
  // The launcher may use what the node or the container has; a rank it bound may not.
  const cpu_set_t launcher = mask_of(getppid()), own = mask_of(0);
  if (wanted > 0 || !comm::launched() ||
      CPU_COUNT(&launcher) < std::max(2, (threads + 1) * world.local_size()))
    return;
  const int fair = CPU_COUNT(&launcher) / world.local_size();
  log_warning(fmt::format(
      "the offloaded optimizer of rank 0 is bound to {} of the {} that its launcher may use: start "
      "with mpirun --bind-to none, mpirun --map-by slot:PE={}, or srun --cpus-per-task={}.",
      name_cores(own), CPU_COUNT(&launcher), fair, fair));
}

}  // namespace

int choose_threads(comm::World& world, comm::Communicator& everyone, bool offload) {
  const std::uint64_t own = host_and_mask();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  everyone.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  const auto sharing = static_cast<int>(std::count(all.begin(), all.end(), own));
  const int share = std::max(1, usable_cores() / sharing);
  const int wanted = wanted_threads();
  const int threads = wanted > 0 ? wanted : share;

  std::array<double, 2> ends = {static_cast<double>(threads), -static_cast<double>(threads)};
  everyone.all_reduce_max(ends);
  if (world.rank() == 0) {
    const int most = static_cast<int>(ends[0]), fewest = static_cast<int>(-ends[1]);
    print_line("threads per rank: " +
               (most == fewest ? fmt::format("{}", most) : fmt::format("{} to {}", fewest, most)) +
               (wanted > 0 ? " (OMP_NUM_THREADS)" : ""));
    if (offload || wanted > share) warn(world, threads, share);
  }
  return threads;
}

void check_memory(comm::Communicator& everyone, const plan::RankPlan& rank) {
  struct Need {
    std::uint64_t node;
    std::int64_t bytes;
  };
  const Need own = {hash64(host_name()), rank.bytes(Pool::device) + rank.bytes(Pool::host)};
  std::vector<Need> all(static_cast<std::size_t>(everyone.size()));
  everyone.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  std::int64_t bytes = 0;
  int ranks = 0;
  for (const Need& need : all) {
    if (need.node != own.node) continue;
    bytes += need.bytes;
    ++ranks;
  }
  together(everyone, [&] {
    const std::int64_t limit = usable_memory();
    if (bytes <= limit) return;
    throw UsageError(
        {.key = "memory",
         .what = fmt::format("the {} of {} {} as planned, and {} may be used there (the machine's "
                             "memory and the limit of its control group).",
                             ranks == 1 ? "rank" : fmt::format("{} ranks", ranks), host_name(),
                             (ranks == 1 ? "needs " : "need ") + format_bytes(bytes),
                             format_bytes(limit)),
         .remedy = "Use more nodes, a smaller train.micro_batch_size or a smaller model."});
  });
}

}  // namespace rr::train
