// The Plan as one JSON object, for programs that read --dry-run --json.
#include <fmt/format.h>

#include "plan/planner.h"
#include "plan/rank_classes.h"

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

std::string batch_json(const BatchPlan& batch) {
  return Object()
      .number("micro_batch", batch.micro_batch)
      .number("global_batch", batch.global_batch)
      .number("micro_batches", batch.num_micro_batches)
      .number("train_iters", batch.train_iters)
      .str();
}

}  // namespace

std::string to_json(const Plan& plan) {
  return Object()
      .raw("topology", topology_json(plan.topology))
      .number("parameters", plan.total_parameters)
      .number("active_parameters", plan.active_parameters)
      .real("flops_per_token", plan.flops_per_token)
      .raw("batch", batch_json(plan.batch))
      .raw("stages", array(plan.stages, stage_json))
      .raw("rank_classes", array(rank_classes(plan), class_json))
      .text("prediction", plan.prediction)
      .text("launch", plan.launch)
      .str();
}

}  // namespace rr::plan
