// The Plan as one JSON object, for programs that read --dry-run --json.
#include <fmt/format.h>

#include "plan/planner.h"
#include "plan/rank_classes.h"
#include "plan/traffic.h"

namespace rr::plan {

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// "name":value pairs of one object, in order.
class Object {
 public:
  Object& raw(const char* name, const std::string& value) {
    text_ += fmt::format("{}{}:{}", text_.empty() ? "" : ",", quoted(name), value);
    return *this;
  }
  Object& text(const char* name, const std::string& value) { return raw(name, quoted(value)); }
  Object& number(const char* name, std::int64_t value) {
    return raw(name, fmt::format("{}", value));
  }
  Object& real(const char* name, double value) { return raw(name, fmt::format("{}", value)); }
  Object& flag(const char* name, bool value) { return raw(name, value ? "true" : "false"); }
  std::string str() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

template <class Items, class Write>
std::string array(const Items& items, const Write& write) {
  std::string text;
  for (const auto& item : items) {
    if (!text.empty()) text += ',';
    text += write(item);
  }
  return "[" + text + "]";
}

std::string numbers(const std::vector<int>& values) {
  return array(values, [](int value) { return fmt::format("{}", value); });
}

std::string topology_json(const Topology& t) {
  return Object()
      .number("world", t.world)
      .number("tensor", t.tensor)
      .number("context", t.context)
      .number("data", t.data)
      .number("pipeline", t.pipeline)
      .number("expert", t.expert)
      .number("expert_tensor", t.expert_tensor)
      .number("expert_data", t.expert_data)
      .number("chunks", t.chunks)
      .str();
}

std::string bucket_json(const Bucket& bucket) {
  return Object()
      .number("begin", bucket.begin)
      .number("end", bucket.end)
      .number("first_layer", bucket.first_layer)
      .number("last_layer", bucket.last_layer)
      .str();
}

std::string buffer_json(const FlatBuffer& buffer) {
  return Object()
      .text("dtype", name_of(buffer.dtype))
      .flag("expert", buffer.expert)
      .number("elements", buffer.size)
      .raw("buckets", array(buffer.buckets, bucket_json))
      .str();
}

std::string stage_json(const StagePlan& stage) {
  return Object()
      .raw("layers", numbers(stage.layers))
      .flag("embedding", stage.embedding)
      .flag("head", stage.head)
      .number("parameters", stage.num_parameters)
      .raw("buffers", array(stage.buffers, buffer_json))
      .str();
}

std::string item_json(const MemoryItem& item) {
  return Object()
      .text("pool", name_of(item.pool))
      .text("what", item.what)
      .number("bytes", item.bytes)
      .flag("exact", item.exact)
      .str();
}

std::string class_json(const RankClass& entry) {
  const RankPlan& rank = entry.example;
  return Object()
      .raw("ranks", numbers(entry.ranks))
      .number("stage", rank.stage)
      .number("shard_elements", rank.shard_elements)
      .number("offloaded_elements", rank.offloaded_elements)
      .number("device_bytes", rank.bytes(Pool::device))
      .number("host_bytes", rank.bytes(Pool::host))
      .raw("memory", array(rank.memory, item_json))
      .str();
}

std::string batch_json(const BatchPlan& batch, double bubble) {
  return Object()
      .number("micro_batch", batch.micro_batch)
      .number("global_batch", batch.global_batch)
      .number("micro_batches", batch.num_micro_batches)
      .number("train_iters", batch.train_iters)
      .real("bubble", bubble)
      .str();
}

std::string optimizer_json(const OptimizerPlan& optimizer) {
  return Object()
      .flag("sharded", optimizer.sharded)
      .flag("cpu_offload", optimizer.cpu_offload)
      .real("fraction", optimizer.fraction)
      .flag("masters", optimizer.offload_masters)
      .flag("overlap", optimizer.overlap)
      .str();
}

// Bytes that a rank of each stage sends in a step.
std::string traffic_json(const Plan& plan) {
  std::vector<int> stages;
  for (int s = 0; s < plan.topology.pipeline; ++s) stages.push_back(s);
  return array(stages, [&](int stage) {
    Object object;
    for (const auto& [what, bytes] : traffic_of(plan, stage)) {
      object.number(what, static_cast<std::int64_t>(bytes));
    }
    return object.str();
  });
}

std::string time_json(const Estimate& time) {
  return Object()
      .real("step_ms", time.step_ms)
      .real("compute_ms", time.compute_ms)
      .real("reduce_ms", time.reduce_ms)
      .real("device_adam_ms", time.device_adam_ms)
      .real("d2h_ms", time.d2h_ms)
      .real("host_adam_ms", time.host_adam_ms)
      .real("h2d_ms", time.h2d_ms)
      .str();
}

}  // namespace

std::string to_json(const Plan& plan, const recipe::Machine& machine) {
  return Object()
      .raw("topology", topology_json(plan.topology))
      .number("parameters", plan.total_parameters)
      .number("active_parameters", plan.active_parameters)
      .real("flops_per_token", plan.flops_per_token)
      .raw("batch", batch_json(plan.batch, bubble_of(plan)))
      .raw("stages", array(plan.stages, stage_json))
      .raw("optimizer", optimizer_json(plan.optimizer))
      .raw("rank_classes", array(rank_classes(plan), class_json))
      .raw("traffic", traffic_json(plan))
      .raw("time", can_estimate(machine) ? time_json(estimate(plan, machine)) : "null")
      .text("prediction", plan.prediction)
      .text("launch", plan.launch)
      .str();
}

}  // namespace rr::plan
