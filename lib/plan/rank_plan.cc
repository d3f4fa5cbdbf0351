// What one rank holds: its experts, its shard of every bucket, where the state of each piece lives.
#include <algorithm>

#include "plan/activations.h"
#include "plan/homes.h"
#include "plan/plan.h"

namespace rr::plan {

const char* name_of(Home home) {
  switch (home) {
    case Home::device:
      return "device";
    case Home::host:
      return "host";
    case Home::streamed:
      return "streamed";
  }
  return "?";
}

const char* name_of(Slab slab) {
  switch (slab) {
    case Slab::device_master:
    case Slab::host_master:
      return "master weights";
    case Slab::device_exp_avg:
    case Slab::host_exp_avg:
      return "exp_avg";
    case Slab::device_exp_avg_sq:
    case Slab::host_exp_avg_sq:
      return "exp_avg_sq";
    case Slab::host_gradient:
      return "staged gradients";
    case Slab::host_weight:
      return "staged weights";
  }
  return "?";
}

Pool pool_of(Slab slab) { return slab < Slab::host_master ? Pool::device : Pool::host; }

Slice shard_of(const Bucket& bucket, int index, int size) {
  const std::int64_t part = (bucket.end - bucket.begin) / size;
  return {bucket.begin + index * part, bucket.begin + (index + 1) * part};
}

std::int64_t first_element(const Parameter& parameter, const RankPlan& rank) {
  if (!parameter.expert) return 0;
  return rank.first_expert * (parameter.size / parameter.shape[0]);
}

std::int64_t RankPlan::bytes(Pool pool) const {
  std::int64_t sum = 0;
  for (const MemoryItem& item : memory) {
    if (item.pool == pool) sum += item.bytes;
  }
  return sum;
}

StateLayout state_layout(const Plan& plan, const RankPlan& rank) {
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(rank.stage)];
  StateLayout layout;
  layout.offsets.resize(rank.shard.size());
  for (std::size_t i = 0; i < rank.shard.size(); ++i) {
    const ShardRange& range = rank.shard[i];
    const DType dtype = stage.buffers[static_cast<std::size_t>(range.buffer)].dtype;
    layout.offsets[i].fill(-1);
    const auto take = [&](Slab slab, std::int64_t element_bytes) {
      std::int64_t& used = layout.bytes[static_cast<std::size_t>(slab)];
      layout.offsets[i][static_cast<std::size_t>(slab)] = used;
      used += (range.end - range.begin) * element_bytes;
    };
    const bool own_master = dtype == DType::f32;
    const bool away = range.home != Home::device;
    if (!own_master && (!away || !plan.optimizer.offload_masters)) take(Slab::device_master, 4);
    if (!away) {
      take(Slab::device_exp_avg, size_of(plan.optimizer.exp_avg));
      take(Slab::device_exp_avg_sq, size_of(plan.optimizer.exp_avg_sq));
      continue;
    }
    take(Slab::host_master, 4);
    take(Slab::host_exp_avg, size_of(plan.optimizer.exp_avg));
    take(Slab::host_exp_avg_sq, size_of(plan.optimizer.exp_avg_sq));
    take(Slab::host_gradient, size_of(plan.optimizer.gradients));
    if (!own_master) take(Slab::host_weight, size_of(dtype));
  }
  return layout;
}

namespace {

std::vector<MemoryItem> memory_items(const Plan& plan, const RankPlan& rank) {
  std::int64_t weights = 0, gradients = 0;
  for (const FlatBuffer& buffer : plan.stages[static_cast<std::size_t>(rank.stage)].buffers) {
    weights += buffer.size * size_of(buffer.dtype);
    gradients += buffer.size * size_of(plan.optimizer.gradients);
  }
  std::vector<MemoryItem> items = {{Pool::device, "weights", weights, true},
                                   {Pool::device, "main gradients", gradients, true}};
  const StateLayout layout = state_layout(plan, rank);
  for (int i = 0; i < kNumSlabs; ++i) {
    const auto slab = static_cast<Slab>(i);
    if (layout.size(slab) > 0) {
      items.push_back({pool_of(slab), name_of(slab), layout.size(slab), true});
    }
  }
  const ActivationBytes activations = activation_bytes(plan, rank.stage, rank.training);
  items.push_back({Pool::device, "activations", activations.device, false});
  if (activations.logits > 0) {
    items.push_back({Pool::device, "logits and loss", activations.logits, false});
  }
  if (activations.host > 0) {
    items.push_back({Pool::host, "offloaded activations", activations.host, false});
  }
  return items;
}

}  // namespace

std::vector<Step> stage_schedule(const Plan& plan, int stage) {
  const Topology& t = plan.topology;
  if (t.chunks == 1) return training_schedule(t.pipeline, stage, plan.batch.num_micro_batches);
  const int group = plan.batch.micro_batch_group > 0 ? plan.batch.micro_batch_group : t.pipeline;
  return interleaved_schedule(t.pipeline, stage, t.chunks, plan.batch.num_micro_batches, group);
}

RankPlan rank_plan(const Plan& plan, int rank) {
  const Topology& topology = plan.topology;
  RankPlan result;
  result.rank = rank;
  result.at = topology.coordinates(rank);
  result.stage = result.at.pipeline;
  result.num_local_experts = plan.model.experts / topology.expert;
  result.first_expert = result.at.expert * result.num_local_experts;
  result.shard = shard_with_homes(plan, result.stage, result.at);
  for (const ShardRange& range : result.shard) {
    result.shard_elements += range.end - range.begin;
    if (range.home != Home::device) result.offloaded_elements += range.end - range.begin;
  }
  result.training = stage_schedule(plan, result.stage);
  result.evaluation =
      evaluation_schedule(topology.pipeline, result.stage, plan.batch.eval_num_micro_batches);
  result.memory = memory_items(plan, result);
  return result;
}

}  // namespace rr::plan
