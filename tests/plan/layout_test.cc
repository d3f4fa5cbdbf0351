// Tensors, buffers, buckets, shards and homes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "plan/specs.h"

using namespace rr;
using namespace rr::plan;
using namespace rr::plan::testing;

namespace {

const Topology kTopologies[] = {
    topology(1, 1, 1, 1), topology(1, 1, 1, 3),    topology(1, 2, 2, 4),      topology(2, 2, 4, 2),
    topology(1, 4, 1, 2), topology(2, 1, 2, 2, 2), topology(2, 1, 2, 2, 1, 2)};

const Parameter& find(const StagePlan& stage, const std::string& name) {
  const auto it = std::find_if(stage.parameters.begin(), stage.parameters.end(),
                               [&](const Parameter& p) { return p.name == name; });
  INFO(name);
  REQUIRE(it != stage.parameters.end());
  return *it;
}

std::string names(const StagePlan& stage) {
  std::string text;
  for (const Parameter& p : stage.parameters) text += p.name + "\n";
  return text;
}

}  // namespace

TEST_CASE("a stage's tensors carry Megatron's names in forward order") {
  ModelSpec model = tiny_moe();
  model.num_layers = 2;
  model.layer_is_moe = {true, false};
  const Plan plan = hand_made(model, topology(1, 1, 1, 1));
  CHECK(names(plan.stages[0]) ==
        "embedding.word_embeddings.weight\n"
        "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight\n"
        "decoder.layers.0.self_attention.linear_qkv.weight\n"
        "decoder.layers.0.self_attention.q_layernorm.weight\n"
        "decoder.layers.0.self_attention.k_layernorm.weight\n"
        "decoder.layers.0.self_attention.linear_proj.weight\n"
        "decoder.layers.0.pre_mlp_layernorm.weight\n"
        "decoder.layers.0.mlp.router.weight\n"
        "decoder.layers.0.mlp.experts.linear_fc1.weight\n"
        "decoder.layers.0.mlp.experts.linear_fc2.weight\n"
        "decoder.layers.1.self_attention.linear_qkv.layer_norm_weight\n"
        "decoder.layers.1.self_attention.linear_qkv.weight\n"
        "decoder.layers.1.self_attention.q_layernorm.weight\n"
        "decoder.layers.1.self_attention.k_layernorm.weight\n"
        "decoder.layers.1.self_attention.linear_proj.weight\n"
        "decoder.layers.1.mlp.linear_fc1.layer_norm_weight\n"
        "decoder.layers.1.mlp.linear_fc1.weight\n"
        "decoder.layers.1.mlp.linear_fc2.weight\n"
        "decoder.final_layernorm.weight\n"
        "output_layer.weight\n");
}

TEST_CASE("biases, LayerNorm and learned positions have tensors of their own") {
  ModelSpec model = tiny_moe();
  model.num_layers = 1;
  model.experts = 0;
  model.layer_is_moe = {false};
  model.norm = Norm::layer;
  model.linear_bias = true;
  model.gated = false;
  model.qk_norm = false;
  model.position = Position::learned;
  model.tied = true;
  const Plan plan = hand_made(model, topology(1, 1, 1, 1));
  CHECK(names(plan.stages[0]) ==
        "embedding.word_embeddings.weight\n"
        "embedding.position_embeddings.weight\n"
        "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight\n"
        "decoder.layers.0.self_attention.linear_qkv.layer_norm_bias\n"
        "decoder.layers.0.self_attention.linear_qkv.weight\n"
        "decoder.layers.0.self_attention.linear_qkv.bias\n"
        "decoder.layers.0.self_attention.linear_proj.weight\n"
        "decoder.layers.0.self_attention.linear_proj.bias\n"
        "decoder.layers.0.mlp.linear_fc1.layer_norm_weight\n"
        "decoder.layers.0.mlp.linear_fc1.layer_norm_bias\n"
        "decoder.layers.0.mlp.linear_fc1.weight\n"
        "decoder.layers.0.mlp.linear_fc1.bias\n"
        "decoder.layers.0.mlp.linear_fc2.weight\n"
        "decoder.layers.0.mlp.linear_fc2.bias\n"
        "decoder.final_layernorm.weight\n"
        "decoder.final_layernorm.bias\n");
  CHECK_FALSE(find(plan.stages[0], "decoder.layers.0.mlp.linear_fc1.bias").decay);
  CHECK(find(plan.stages[0], "decoder.layers.0.mlp.linear_fc1.bias").init == Init::zeros);
  CHECK(find(plan.stages[0], "decoder.layers.0.mlp.linear_fc1.weight").shape ==
        std::vector<std::int64_t>{96, 32});
}

TEST_CASE(
    "a tied head is absent on one stage and a duplicate of the embedding on the last of two") {
  ModelSpec model = tiny_moe();
  model.tied = true;
  const Plan two = hand_made(model, topology(1, 2, 1, 1));
  const Parameter& head = find(two.stages[1], "output_layer.weight");
  CHECK(head.duplicate);
  CHECK(head.init_name == "embedding.word_embeddings.weight");
  CHECK(head.std == model.embedding_std);
  const Plan one = hand_made(model, topology(1, 1, 1, 1));
  CHECK(names(one.stages[0]).find("output_layer") == std::string::npos);
  CHECK(two.total_parameters == one.total_parameters);
  const std::int64_t padding = (model.padded_vocab - model.vocab) * model.hidden;
  CHECK(one.total_parameters + padding == one.stages[0].num_parameters);
  CHECK(two.stages[0].num_parameters + two.stages[1].num_parameters ==
        one.stages[0].num_parameters);
}

TEST_CASE("column and row slices follow TP, expert slices ETP") {
  const Plan plan = hand_made(tiny_moe(), topology(2, 1, 2, 2, 1, 2));
  const StagePlan& stage = plan.stages[0];
  using Shape = std::vector<std::int64_t>;
  CHECK(find(stage, "embedding.word_embeddings.weight").shape == Shape{160, 32});
  CHECK(find(stage, "decoder.layers.0.self_attention.linear_qkv.weight").shape == Shape{32, 32});
  CHECK(find(stage, "decoder.layers.0.self_attention.linear_proj.weight").shape == Shape{32, 16});
  CHECK(find(stage, "decoder.layers.0.mlp.router.weight").shape == Shape{4, 32});
  CHECK(find(stage, "decoder.layers.0.mlp.experts.linear_fc1.weight").shape == Shape{2, 40, 32});
  CHECK(find(stage, "decoder.layers.0.mlp.experts.linear_fc2.weight").shape == Shape{2, 32, 20});
  CHECK(find(stage, "decoder.layers.1.mlp.linear_fc1.weight").shape == Shape{96, 32});
  CHECK(find(stage, "decoder.layers.1.mlp.linear_fc2.weight").shape == Shape{32, 48});
}

TEST_CASE("first_element moves experts with the EP rank and nothing else") {
  const Plan plan = hand_made(tiny_moe(), topology(1, 1, 2, 2));
  const RankPlan rank = rank_plan(plan, 1);
  CHECK(rank.first_expert == 2);
  CHECK(rank.num_local_experts == 2);
  const StagePlan& stage = plan.stages[0];
  CHECK(first_element(find(stage, "decoder.layers.0.mlp.experts.linear_fc1.weight"), rank) ==
        2 * 80 * 32);
  CHECK(first_element(find(stage, "output_layer.weight"), rank) == 0);
}

TEST_CASE("tensors lie apart and aligned, inside buckets of whole layers, padded for their group") {
  for (const Topology& t : kTopologies) {
    for (const std::int64_t target : {std::int64_t{0}, std::int64_t{1}, std::int64_t{20000}}) {
      const Plan plan = hand_made(tiny_moe(), t, target);
      for (const StagePlan& stage : plan.stages) {
        std::vector<std::int64_t> ends(stage.buffers.size(), 0);
        for (const Parameter& p : stage.parameters) {
          const FlatBuffer& buffer = stage.buffers[static_cast<std::size_t>(p.buffer)];
          CHECK(buffer.expert == p.expert);
          CHECK(p.offset % 64 == 0);
          CHECK(p.offset >= ends[static_cast<std::size_t>(p.buffer)]);
          ends[static_cast<std::size_t>(p.buffer)] = p.offset + p.size;
          const auto holds = [&](const Bucket& b) {
            return p.offset >= b.begin && p.offset + p.size <= b.end && p.layer >= b.first_layer &&
                   p.layer <= b.last_layer;
          };
          CHECK(std::count_if(buffer.buckets.begin(), buffer.buckets.end(), holds) == 1);
        }
        for (std::size_t b = 0; b < stage.buffers.size(); ++b) {
          const FlatBuffer& buffer = stage.buffers[b];
          const int group = t.size(buffer.expert ? Group::expert_data : Group::data);
          std::int64_t end = 0;
          int layer = -1;
          for (const Bucket& bucket : buffer.buckets) {
            CHECK(bucket.begin == end);
            CHECK((bucket.end - bucket.begin) % (64 * group) == 0);
            CHECK(bucket.first_layer > layer);
            layer = bucket.last_layer;
            end = bucket.end;
          }
          CHECK(buffer.size == end);
          CHECK(ends[b] <= end);
        }
      }
    }
  }
}

TEST_CASE("a bucket closes when it reaches bucket_size, counted from the last layer") {
  const Plan plan = hand_made(tiny_moe(), topology(1, 1, 1, 1), 1);
  std::set<int> layers;
  for (const Parameter& p : plan.stages[0].parameters) {
    if (!p.expert) layers.insert(p.layer);
  }
  CHECK(plan.stages[0].buffers[0].buckets.size() == layers.size());
  // The head is 10,240 + norm: with 10,000 it is a bucket alone; with 12,000 a layer joins it.
  const auto last = [](const Plan& p) { return p.stages[0].buffers[0].buckets.back().first_layer; };
  CHECK(last(hand_made(tiny_moe(), topology(1, 1, 1, 1), 10000)) == 5);
  CHECK(last(hand_made(tiny_moe(), topology(1, 1, 1, 1), 12000)) == 4);
  CHECK(hand_made(tiny_moe(), topology(1, 1, 1, 1)).stages[0].buffers[0].buckets.size() == 1);
}

TEST_CASE("parameters over stages, tensor and expert ranks add up to the whole model") {
  const ModelSpec model = tiny_moe();
  for (const Topology& t : kTopologies) {
    const Plan plan = hand_made(model, t);
    std::int64_t sum = 0;
    for (const StagePlan& stage : plan.stages) {
      for (const Parameter& p : stage.parameters) {
        std::int64_t copies = 1;
        if (p.expert) copies *= t.expert;
        if (p.split >= 0) copies *= p.expert ? t.expert_tensor : t.tensor;
        if (!p.duplicate) sum += p.size * copies;
      }
    }
    CHECK(sum - 2 * (model.padded_vocab - model.vocab) * model.hidden == plan.total_parameters);
  }
}

TEST_CASE("the shards of a group partition every bucket, and homes partition each shard") {
  for (const Topology& t : kTopologies) {
    for (const double fraction : {0.0, 0.3, 0.5, 1.0}) {
      for (const auto placement :
           {OptimizerPlan::Placement::latest_first, OptimizerPlan::Placement::megatron}) {
        Plan plan = hand_made(tiny_moe(), t, 20000);
        plan.optimizer.cpu_offload = fraction > 0;
        plan.optimizer.fraction = fraction;
        plan.optimizer.placement = placement;
        // Elements of (stage, tensor rank or expert rank, buffer) seen so far.
        std::map<std::tuple<int, int, int>, std::map<std::int64_t, std::int64_t>> seen;
        for (int r = 0; r < t.world; ++r) {
          const RankPlan rank = rank_plan(plan, r);
          const StagePlan& stage = plan.stages[static_cast<std::size_t>(rank.stage)];
          for (const ShardRange& range : rank.shard) {
            const auto& buffer = stage.buffers[static_cast<std::size_t>(range.buffer)];
            const auto& bucket = buffer.buckets[static_cast<std::size_t>(range.bucket)];
            CHECK(range.begin >= bucket.begin);
            CHECK(range.end <= bucket.end);
            CHECK(range.begin < range.end);
            CHECK(range.begin % 64 == 0);
            CHECK(range.end % 64 == 0);
            const int model_part = buffer.expert
                                       ? rank.at.expert * t.expert_tensor + rank.at.expert_tensor
                                       : rank.at.tensor;
            const auto key = std::tuple(rank.stage, model_part, range.buffer);
            CHECK(seen[key].emplace(range.begin, range.end).second);
          }
          if (placement == OptimizerPlan::Placement::latest_first) {
            const auto exact = static_cast<std::int64_t>(
                fraction * static_cast<double>(rank.shard_elements) / 64.0);
            CHECK(rank.offloaded_elements == exact * 64);
          }
          if (fraction == 1.0) CHECK(rank.offloaded_elements == rank.shard_elements);
        }
        for (const auto& [key, ranges] : seen) {
          std::int64_t end = 0;
          for (const auto& [begin, stop] : ranges) {
            CHECK(begin == end);
            end = stop;
          }
          const auto& buffers = plan.stages[static_cast<std::size_t>(std::get<0>(key))].buffers;
          CHECK(end == buffers[static_cast<std::size_t>(std::get<2>(key))].size);
        }
      }
    }
  }
}

TEST_CASE("the latest layers leave the device first") {
  Plan plan = hand_made(tiny_moe(), topology(1, 1, 1, 1), 1);
  plan.optimizer.cpu_offload = true;
  plan.optimizer.fraction = 0.4;
  const RankPlan rank = rank_plan(plan, 0);
  int earliest_host = 100, latest_device = -1;
  for (const ShardRange& range : rank.shard) {
    const auto& bucket = plan.stages[0]
                             .buffers[static_cast<std::size_t>(range.buffer)]
                             .buckets[static_cast<std::size_t>(range.bucket)];
    if (range.home == Home::host) earliest_host = std::min(earliest_host, bucket.first_layer);
    if (range.home == Home::device) latest_device = std::max(latest_device, bucket.first_layer);
  }
  CHECK(earliest_host == latest_device);  // exactly one layer is split
}

TEST_CASE("megatron's placement takes whole tensors until the fraction is passed, per optimizer") {
  Plan plan = hand_made(tiny_moe(), topology(1, 1, 1, 1));
  plan.optimizer.cpu_offload = true;
  plan.optimizer.fraction = 0.5;
  plan.optimizer.placement = OptimizerPlan::Placement::megatron;
  const RankPlan rank = rank_plan(plan, 0);
  for (const int buffer : {0, 1}) {
    std::int64_t total = 0, moved = 0, smallest_cut = 0;
    for (const Parameter& p : plan.stages[0].parameters) {
      if (p.buffer != buffer) continue;
      total += p.size;
      // Every expert's matrix is a tensor of its own.
      const std::int64_t size = p.expert ? p.size / p.shape[0] : p.size;
      for (const ShardRange& range : rank.shard) {
        if (range.buffer != buffer || range.home != Home::host) continue;
        for (std::int64_t at = p.offset; at < p.offset + p.size; at += size) {
          const bool inside = at >= range.begin && at + size <= range.end;
          const bool apart = at + size <= range.begin || at >= range.end;
          CHECK((inside || apart));
          if (inside) moved += size;
          if (inside && range.begin == at && p.decay) smallest_cut = size;
        }
      }
    }
    CHECK(2 * moved >= total);
    CHECK(2 * (moved - smallest_cut) < total);
  }
}

TEST_CASE("every replica steps everything when the optimizer is not sharded") {
  Plan plan = hand_made(tiny_moe(), topology(1, 1, 1, 4));
  plan.optimizer.sharded = false;
  const RankPlan rank = rank_plan(plan, 3);
  CHECK(rank.shard_elements == plan.stages[0].buffers[0].size + plan.stages[0].buffers[1].size);
}
