// Building a rank: threads, device, data, optimizer, model.
#include "train/build.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/log.h"
#include "base/random.h"
#include "train/train.h"

namespace rr::train {
namespace {

// This node and the cores this process may use, as one comparable number.
std::uint64_t host_and_mask() {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  std::string key = host.data();
  key.append(reinterpret_cast<const char*>(&mask), sizeof mask);
  return hash64(key);
}

// Threads of this rank: the cores it may use, shared evenly among the ranks of this node that have
// the same affinity mask (bound ranks have their own). OMP_NUM_THREADS, when set, wins.
int threads_of_rank(comm::Communicator& world) {
  const std::uint64_t own = host_and_mask();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  if (const char* wanted = std::getenv("OMP_NUM_THREADS")) {
    const int threads = std::atoi(wanted);
    if (threads >= 1) return threads;
  }
  int sharing = 0;
  for (const std::uint64_t other : all) sharing += other == own;
  return std::max(1, usable_cores() / sharing);
}

void warn_about_threads(const Runtime& runtime) {
  if (runtime.rank.rank != 0 || !runtime.plan.optimizer.cpu_offload) return;
  if (runtime.num_threads > 1 || usable_cores() < 2 || runtime.plan.topology.world > 1) return;
  log_warning(
      "optimizer.optimizer_cpu_offload runs Adam on one thread: unset OMP_NUM_THREADS, or bind "
      "more cores to each rank (mpirun --bind-to none)");
}

std::vector<model::BufferView> views(const Runtime& runtime) {
  std::vector<model::BufferView> result;
  const auto& buffers = runtime.plan.stages[static_cast<std::size_t>(runtime.rank.stage)].buffers;
  for (int i = 0; i < static_cast<int>(buffers.size()); ++i)
    result.push_back({runtime.optimizer->weights(i), runtime.optimizer->gradients(i)});
  return result;
}

}  // namespace

Runtime build(const plan::Plan& plan, comm::World& world) {
  Runtime runtime{.plan = plan,
                  .rank = plan::rank_plan(plan, world.rank()),
                  .groups = comm::make_groups(world, plan.topology)};
  runtime.num_threads = threads_of_rank(runtime.world());
  warn_about_threads(runtime);

  together(runtime.world(), [&] {
    runtime.device = device::make_cpu_device();
    runtime.threads = std::make_unique<ThreadPool>(runtime.num_threads);
    runtime.torch = std::make_unique<TorchGlobals>(*runtime.device, runtime.num_threads);
    if (runtime.reads_data()) {
      runtime.train_samples = data::open(plan.data, data::Split::train);
      if (plan.batch.eval_interval > 0)
        runtime.valid_samples = data::open(plan.data, data::Split::valid);
    }
    runtime.optimizer = optim::make_optimizer(
        {plan, runtime.rank, *runtime.device, runtime.groups, *runtime.threads});
  });
  together(runtime.world(), [&] {
    runtime.optimizer->initialize();
    if (plan.activations.enabled && plan.activations.layers > 0)
      runtime.store =
          std::make_unique<offload::Store>(*runtime.device, plan.activations.retain_buffers);
    optim::Optimizer* optimizer = runtime.optimizer.get();
    runtime.model = std::make_unique<model::Model>(model::Environment{
        .plan = plan,
        .rank = runtime.rank,
        .device = *runtime.device,
        .groups = runtime.groups,
        .buffers = views(runtime),
        .store = runtime.store.get(),
        .hooks = {
            .before_layer = [optimizer](int layer) { optimizer->wait_for(layer); },
            .gradients_ready = [optimizer](int layer) { optimizer->gradients_ready(layer); }}});
  });
  return runtime;
}

}  // namespace rr::train
