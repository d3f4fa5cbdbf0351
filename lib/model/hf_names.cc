// Hugging Face names and layouts of our parameters: every full tensor is a run of row ranges of
// theirs (megatron.md 6.4).
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "model/model.h"

namespace rr::model {

namespace {

// `rows` rows of the tensor `name` from `first_row` on; an empty name: zeros.
struct Segment {
  std::string name;
  std::int64_t first_row = 0, rows = 0;
};

struct Mapping {
  std::int64_t width = 1;  // elements of a row
  bool vector = false;     // one-dimensional on their side
  std::vector<Segment> segments;
};

// "decoder.layers.12.mlp.x" -> 12 and "mlp.x"; -1 where there is no layer.
struct Name {
  std::int64_t layer = -1;
  std::string rest;
};
Name split_name(const std::string& name) {
  static const std::string prefix = "decoder.layers.";
  if (!name.starts_with(prefix)) return {-1, name};
  const std::size_t dot = name.find('.', prefix.size());
  return {std::stoll(name.substr(prefix.size(), dot - prefix.size())), name.substr(dot + 1)};
}

class Mapper {
 public:
  Mapper(const plan::Plan& plan, const plan::Parameter& parameter, HfNames names)
      : model_(plan.model), parameter_(parameter), mixtral_(names == HfNames::mixtral) {}

  Mapping map() {
    const Name name = split_name(parameter_.name);
    mapping_.vector = parameter_.shape.size() == 1;
    mapping_.width = mapping_.vector ? 1 : parameter_.shape.back();
    if (name.layer < 0) {
      outer(name.rest);
      return std::move(mapping_);
    }
    layer_ = "model.layers." + std::to_string(name.layer) + ".";
    const std::size_t dot = name.rest.rfind('.');
    const std::string module = name.rest.substr(0, dot);
    kind_ = name.rest.substr(dot);  // ".weight", ".bias", ".layer_norm_weight"
    if (kind_.starts_with(".layer_norm")) {
      kind_.replace(0, std::strlen(".layer_norm_"), ".");
      whole(module == "self_attention.linear_qkv" ? "input_layernorm" : "post_attention_layernorm");
    } else {
      inner(module);
    }
    return std::move(mapping_);
  }

 private:
  void add(const std::string& module, std::int64_t first_row, std::int64_t rows) {
    mapping_.segments.push_back({layer_ + module + kind_, first_row, rows});
  }
  void whole(const std::string& module) { add(module, 0, rows()); }
  std::int64_t rows() const { return parameter_.size / mapping_.width; }

  void outer(const std::string& name) {
    if (name == "embedding.word_embeddings.weight" || name == "output_layer.weight") {
      const bool head = name == "output_layer.weight" && !model_.tied;
      mapping_.segments.push_back(
          {head ? "lm_head.weight" : "model.embed_tokens.weight", 0, model_.vocab});
      if (model_.padded_vocab > model_.vocab) {
        mapping_.segments.push_back({"", 0, model_.padded_vocab - model_.vocab});
      }
    } else if (name.starts_with("decoder.final_layernorm")) {
      mapping_.segments.push_back({"model.norm" + name.substr(name.rfind('.')), 0, rows()});
    } else {
      unknown();
    }
  }

  void inner(const std::string& module) {
    if (module == "self_attention.linear_qkv") return fused_qkv();
    if (module == "self_attention.linear_proj") return whole("self_attn.o_proj");
    if (module == "self_attention.q_layernorm") return whole("self_attn.q_norm");
    if (module == "self_attention.k_layernorm") return whole("self_attn.k_norm");
    if (module == "pre_mlp_layernorm") return whole("post_attention_layernorm");
    if (module == "mlp.router") return whole(mixtral_ ? "block_sparse_moe.gate" : "mlp.gate");
    if (module == "mlp.experts.linear_fc1" || module == "mlp.experts.linear_fc2") {
      for (std::int64_t e = 0; e < model_.experts; ++e) expert(e, module.ends_with("fc1"));
      return;
    }
    if (module == "mlp.linear_fc1" && model_.gated) {
      add("mlp.gate_proj", 0, model_.ffn);
      return add("mlp.up_proj", 0, model_.ffn);
    }
    if (module == "mlp.linear_fc1") return whole("mlp.up_proj");
    if (module == "mlp.linear_fc2") return whole("mlp.down_proj");
    unknown();
  }

  void fused_qkv() {
    const std::int64_t dim = model_.head_dim;
    const std::int64_t queries = model_.heads / model_.query_groups * dim;
    for (std::int64_t g = 0; g < model_.query_groups; ++g) {
      add("self_attn.q_proj", g * queries, queries);
      add("self_attn.k_proj", g * dim, dim);
      add("self_attn.v_proj", g * dim, dim);
    }
  }

  void expert(std::int64_t e, bool first) {
    const std::string base =
        (mixtral_ ? "block_sparse_moe.experts." : "mlp.experts.") + std::to_string(e) + ".";
    if (first) {
      if (model_.gated) add(base + (mixtral_ ? "w1" : "gate_proj"), 0, model_.expert_ffn);
      add(base + (mixtral_ ? "w3" : "up_proj"), 0, model_.expert_ffn);
    } else {
      add(base + (mixtral_ ? "w2" : "down_proj"), 0, model_.hidden);
    }
  }

  [[noreturn]] void unknown() const { throw Error(parameter_.name + " has no Hugging Face name"); }

  const plan::ModelSpec& model_;
  const plan::Parameter& parameter_;
  bool mixtral_;
  Mapping mapping_;
  std::string layer_, kind_;
};

}  // namespace

void fill_from_hf(const plan::Plan& plan, const plan::Parameter& parameter, std::int64_t first,
                  std::int64_t count, float* out,
                  const std::function<at::Tensor(const std::string& name)>& read, HfNames names) {
  const Mapping mapping = Mapper(plan, parameter, names).map();
  std::map<std::string, at::Tensor> tensors;
  std::int64_t at = 0;  // first element of the segment
  for (const Segment& segment : mapping.segments) {
    const std::int64_t size = segment.rows * mapping.width;
    const std::int64_t begin = std::max(first, at), end = std::min(first + count, at + size);
    const std::int64_t segment_begin = at;
    at += size;
    if (begin >= end) continue;
    if (segment.name.empty()) {
      std::fill_n(out + (begin - first), end - begin, 0.0F);
      continue;
    }
    at::Tensor& tensor = tensors[segment.name];
    if (!tensor.defined()) tensor = read(segment.name);
    const std::int64_t needed = (segment.first_row + segment.rows) * mapping.width;
    if (tensor.numel() < needed) {
      throw UsageError({Severity::error, segment.name, "",
                        "has " + std::to_string(tensor.numel()) + " elements, the model needs " +
                            std::to_string(needed) + ".",
                        "Use the config.json of the same checkpoint."});
    }
    const float* source = tensor.const_data_ptr<float>() + segment.first_row * mapping.width +
                          (begin - segment_begin);
    std::copy_n(source, end - begin, out + (begin - first));
  }
  RR_CHECK(first + count <= at, parameter.name);
}

std::vector<HfPiece> to_hf(const plan::Plan& plan, const plan::Parameter& parameter,
                           const at::Tensor& full, HfNames names) {
  if (parameter.duplicate) return {};
  const Mapping mapping = Mapper(plan, parameter, names).map();
  const at::Tensor rows = full.reshape({-1, mapping.width});
  std::map<std::string, std::vector<std::pair<std::int64_t, at::Tensor>>> parts;
  std::int64_t at = 0;
  for (const Segment& segment : mapping.segments) {
    if (!segment.name.empty()) {
      parts[segment.name].emplace_back(segment.first_row, rows.narrow(0, at, segment.rows));
    }
    at += segment.rows;
  }
  std::vector<HfPiece> pieces;
  for (auto& [name, list] : parts) {
    std::vector<at::Tensor> ordered;
    for (const auto& [row, part] : list) ordered.push_back(part);  // rows ascend already
    at::Tensor value = at::cat(ordered);
    pieces.push_back({name, mapping.vector ? value.flatten() : value});
  }
  return pieces;
}

}  // namespace rr::model
