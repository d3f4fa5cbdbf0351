// A Hugging Face config.json as model keys. JSON is read as YAML.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "recipe/fields.h"
#include "recipe/yaml.h"

namespace rr::recipe {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

class HfConfig {
 public:
  HfConfig(const Node& root, std::string path) : root_(root), path_(std::move(path)) {}

  Pairs pairs() {
    type_ = text("model_type");
    static const std::vector<std::string> kTypes = {"llama", "qwen3", "qwen3_moe", "mixtral",
                                                    "olmoe"};
    if (std::find(kTypes.begin(), kTypes.end(), type_) == kTypes.end()) {
      fail("model_type", fmt::format("model type '{}' is not supported", type_),
           fmt::format("Supported are {}.", join(kTypes, ", ")));
    }
    dense();
    positions();
    if (type_ == "qwen3_moe" || type_ == "mixtral" || type_ == "olmoe") experts();
    if (!problems_.empty()) throw UsageError(problems_);
    return std::move(pairs_);
  }

 private:
  void fail(const std::string& key, const std::string& what, const std::string& remedy = "") {
    problems_.push_back({Severity::error, key, path_, what, remedy});
    if (key == "model_type") throw UsageError(problems_);
  }

  const Node* find(const char* key) const {
    const Node* node = root_.find(key);
    return node == nullptr || node->kind == Kind::null ? nullptr : node;
  }
  std::string text(const char* key) const {
    const Node* node = find(key);
    return node != nullptr && node->kind == Kind::text ? node->text : "";
  }
  bool flag(const char* key, bool otherwise) const {
    const Node* node = find(key);
    return node != nullptr && node->kind == Kind::boolean ? node->boolean : otherwise;
  }
  std::int64_t whole(const char* key) {
    const Node* node = find(key);
    if (node != nullptr && node->kind == Kind::integer && node->integer > 0) return node->integer;
    fail(key, node == nullptr ? "is missing" : fmt::format("{} is not a size", describe(*node)));
    return 1;
  }
  double number(const Node* node, const char* key, double otherwise) {
    if (node == nullptr || node->kind == Kind::null) return otherwise;
    if (node->kind == Kind::integer) return static_cast<double>(node->integer);
    if (node->kind == Kind::real) return node->real;
    fail(key, fmt::format("{} is not a number", describe(*node)));
    return otherwise;
  }

  void add(const char* key, std::int64_t value) {
    pairs_.emplace_back(key, fmt::format("{}", value));
  }
  void add(const char* key, bool value) { pairs_.emplace_back(key, value ? "true" : "false"); }
  void add(const char* key, double value) { pairs_.emplace_back(key, yaml_line(real_node(value))); }
  void add(const char* key, const char* value) { pairs_.emplace_back(key, value); }

  void dense() {
    const std::int64_t hidden = whole("hidden_size"), heads = whole("num_attention_heads");
    add("num_layers", whole("num_hidden_layers"));
    add("hidden_size", hidden);
    add("ffn_hidden_size", whole("intermediate_size"));
    add("num_attention_heads", heads);
    add("num_query_groups", find("num_key_value_heads") ? whole("num_key_value_heads") : heads);
    if (find("head_dim") == nullptr && hidden % heads != 0) {
      fail("head_dim", "is missing, and the hidden size is not a multiple of the heads");
    }
    add("kv_channels", find("head_dim") ? whole("head_dim") : hidden / heads);
    add("vocab_size", whole("vocab_size"));
    add("share_embeddings_and_output_weights", flag("tie_word_embeddings", false));
    add("normalization", "RMSNorm");
    add("layernorm_epsilon", number(find("rms_norm_eps"), "rms_norm_eps", 1e-6));
    add("qk_layernorm", type_ == "qwen3" || type_ == "qwen3_moe" || type_ == "olmoe");
    add("qk_layernorm_whole", type_ == "olmoe");
    add("gated_linear_unit", true);
    const std::string act = find("hidden_act") ? text("hidden_act") : "silu";
    if (act != "silu" && act != "gelu") {
      fail("hidden_act", fmt::format("activation '{}' is not supported", act),
           "Supported are silu and gelu.");
    }
    add("activation_func", act.c_str());
    add("add_bias_linear", false);
    add("add_qkv_bias", false);
    add("attention_dropout", 0.0);
    add("hidden_dropout", 0.0);
    add("init_method_std", number(find("initializer_range"), "initializer_range", 0.02));
    refuse_unsupported();
  }

  void refuse_unsupported() {
    for (const char* key : {"attention_bias", "mlp_bias"}) {
      if (flag(key, false)) fail(key, "true is not supported");
    }
    if (find("clip_qkv") != nullptr) fail("clip_qkv", "clipping is not supported");
    const bool window = find("sliding_window") != nullptr;
    if (window && (type_ == "mixtral" || flag("use_sliding_window", false))) {
      fail("sliding_window", "sliding-window attention is not supported");
    }
  }

  // transformers 5 keeps theta and scaling in rope_parameters, 4 in rope_theta and rope_scaling.
  void positions() {
    const Node* parameters = find("rope_parameters");
    const Node* scaling = parameters != nullptr ? parameters : find("rope_scaling");
    const auto inner = [scaling](const char* key) {
      return scaling == nullptr ? nullptr : scaling->find(key);
    };
    const Node* theta = inner("rope_theta");
    if (theta == nullptr) theta = find("rope_theta");
    add("position_embedding_type", "rope");
    add("rotary_base", number(theta, "rope_theta", 10000.0));
    const Node* type = inner("rope_type");
    if (type == nullptr) type = inner("type");
    const std::string name = type == nullptr || type->kind == Kind::null ? "default" : type->text;
    if (name == "default") return;
    if (name != "llama3") {
      fail("rope_scaling", fmt::format("rope scaling '{}' is not supported", name),
           "Supported are default and llama3.");
      return;
    }
    add("rope_scaling", true);
    add("rope_scaling_factor", number(inner("factor"), "rope_scaling.factor", 8.0));
    add("rope_scaling_low_freq_factor",
        number(inner("low_freq_factor"), "rope_scaling.low_freq_factor", 1.0));
    add("rope_scaling_high_freq_factor",
        number(inner("high_freq_factor"), "rope_scaling.high_freq_factor", 4.0));
    add("rope_scaling_original_max_position_embeddings",
        static_cast<std::int64_t>(number(inner("original_max_position_embeddings"),
                                         "rope_scaling.original_max_position_embeddings", 8192)));
  }

  void experts() {
    // Both spellings exist: num_experts (version 4, olmoe) and num_local_experts (5, mixtral).
    add("num_moe_experts", whole(find("num_local_experts") ? "num_local_experts" : "num_experts"));
    const bool own_width = type_ == "qwen3_moe";
    add("moe_ffn_hidden_size", whole(own_width ? "moe_intermediate_size" : "intermediate_size"));
    add("moe_router_topk", whole("num_experts_per_tok"));
    // Mixtral always renormalises; the others say so, and their default is not to.
    add("moe_router_pre_softmax", type_ != "mixtral" && !flag("norm_topk_prob", false));
    add("moe_router_score_function", "softmax");
    add("moe_router_load_balancing_type", "aux_loss");
    add("moe_aux_loss_coeff", number(find("router_aux_loss_coef"), "router_aux_loss_coef", 0.001));
    pairs_.emplace_back("moe_layer_freq", layer_pattern());
  }

  std::string layer_pattern() {
    const std::int64_t layers = whole("num_hidden_layers");
    const std::int64_t step = find("decoder_sparse_step") ? whole("decoder_sparse_step") : 1;
    std::vector<std::string> pattern;
    bool all = true;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(layers, 10000); ++i) {
      bool sparse = (i + 1) % step == 0;
      if (const Node* dense_layers = find("mlp_only_layers")) {
        for (const Node& layer : dense_layers->items) {
          if (layer.kind == Kind::integer && layer.integer == i) sparse = false;
        }
      }
      all = all && sparse;
      pattern.emplace_back(sparse ? "1" : "0");
    }
    return all ? "1" : "[" + join(pattern, ", ") + "]";
  }

  const Node& root_;
  std::string path_;
  std::string type_;
  Pairs pairs_;
  std::vector<Problem> problems_;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> read_hf_config(const std::string& path) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, error)) {
    throw UsageError(
        {Severity::error, path, "", "cannot be read", "Give the path of a config.json."});
  }
  std::ostringstream content;
  content << file.rdbuf();
  std::string text = content.str();
  // JSON may be indented with tabs, which YAML forbids; inside its strings there are none.
  std::replace(text.begin(), text.end(), '\t', ' ');
  std::vector<Problem> problems;
  const Node root = parse_yaml(text, path, OriginKind::preset, &problems);
  if (!problems.empty()) throw UsageError(problems);
  return HfConfig(root, path).pairs();
}

}  // namespace rr::recipe
