// Hugging Face configs and machine files.
#include <catch2/catch.hpp>
#include <map>

#include "recipe_fixture.h"

using namespace rr;
using namespace rr::recipe;
using namespace rr::test;

namespace {

std::map<std::string, std::string> read(const std::string& name) {
  const auto pairs = read_hf_config(std::string(RR_TEST_DATA) + "/recipe/hf/" + name + ".json");
  return {pairs.begin(), pairs.end()};
}

}  // namespace

TEST_CASE("both spellings of a config.json give the same model") {
  for (const char* name : {"qwen3_moe_norm_topk", "qwen3_moe_plain_topk", "qwen3_moe_idle_experts",
                           "qwen3_dense_tied", "qwen3_dense_untied", "llama_plain",
                           "llama_llama3_rope_sharded", "mixtral_plain", "olmoe_plain"}) {
    CAPTURE(name);
    CHECK(read(std::string(name) + "_v4") == read(std::string(name) + "_v5"));
  }
}

TEST_CASE("a Qwen3 MoE config names its sizes, its routing and its dense layers") {
  auto keys = read("qwen3_moe_plain_topk_v4");
  CHECK(keys["num_layers"] == "3");
  CHECK(keys["hidden_size"] == "48");
  CHECK(keys["kv_channels"] == "16");
  CHECK(keys["num_moe_experts"] == "8");
  CHECK(keys["moe_ffn_hidden_size"] == "16");
  CHECK(keys["moe_router_pre_softmax"] == "true");
  CHECK(keys["moe_layer_freq"] == "[1, 0, 1]");
  CHECK(keys["qk_layernorm"] == "true");
  CHECK(read("qwen3_moe_norm_topk_v5")["moe_router_pre_softmax"] == "false");
  CHECK(read("olmoe_plain_v5")["qk_layernorm_whole"] == "true");
  CHECK(read("mixtral_plain_v5")["moe_router_pre_softmax"] == "false");
  CHECK(read("mixtral_plain_v5")["kv_channels"] == "16");
  auto llama = read("llama_llama3_rope_sharded_v4");
  CHECK(llama["rope_scaling"] == "true");
  CHECK(llama["rope_scaling_original_max_position_embeddings"] == "64");
  CHECK(llama["rotary_base"] == "500000");
  CHECK(llama["share_embeddings_and_output_weights"] == "true");
}

TEST_CASE("a config.json can be the preset of a recipe") {
  const Recipe recipe = load_text(
      "train: {train_iters: 1}\noptimizer: {lr: 1.0e-3}\ndataset: {seq_length: 24}\n",
      {"model.preset=" + std::string(RR_TEST_DATA) + "/recipe/hf/qwen3_moe_norm_topk_v5.json"});
  CHECK(texts(recipe) == "");
  CHECK(recipe.config.model.num_moe_experts == 8);
}

TEST_CASE("an unreadable or unsupported config.json is refused by name") {
  const TempFolder folder;
  CHECK_THROWS_AS(read_hf_config("/nowhere/config.json"), UsageError);
  CHECK_THROWS_WITH(read_hf_config(folder.write("a.json", "{\"model_type\": \"bert\"}")),
                    Catch::Contains("model type 'bert' is not supported"));
  CHECK_THROWS_WITH(
      read_hf_config(folder.write(
          "b.json",
          "{\"model_type\": \"llama\", \"hidden_size\": 64, \"rope_scaling\": {\"type\": "
          "\"linear\", \"factor\": 2}}")),
      Catch::Contains("rope scaling 'linear' is not supported") &&
          Catch::Contains("num_hidden_layers"));
  CHECK_THROWS_AS(read_hf_config(folder.write("c.json", "{\"model_type\": ")), UsageError);
}

TEST_CASE("every machine file loads, and mistakes in one are named") {
  const std::vector<std::string> machines = list_machines({RR_SOURCE_DIR});
  CHECK(machines.size() >= 6);
  for (const std::string& name : machines) {
    const Machine machine = load_machine(name, {RR_SOURCE_DIR});
    CHECK(machine.name == name);
    CHECK(machine.device_bytes > 0);
    CHECK(machine.collective_latency_us > 0);
  }
  CHECK_THROWS_WITH(load_machine("h100_smx", {RR_SOURCE_DIR}),
                    Catch::Contains("no machine 'h100_smx'. Did you mean h100_sxm"));
  const TempFolder folder;
  const std::string file = folder.write("m.yaml", "device_bytes: -1\nlink_gpbs: 3\n");
  CHECK_THROWS_WITH(load_machine(file, {}),
                    Catch::Contains("link_gpbs") && Catch::Contains("Did you mean link_gbps?") &&
                        Catch::Contains("-1 is not a whole number above 0") &&
                        Catch::Contains("host_cores"));
}
