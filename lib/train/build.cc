// Building a rank: threads, device, data, optimizer, model.
#include "train/build.h"

#include "train/node.h"
#include "train/train.h"

namespace rr::train {
namespace {

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
  check_memory(runtime.world(), runtime.rank);
  runtime.num_threads = choose_threads(world, runtime.world(), plan.optimizer.cpu_offload);

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
