// Sizes of real models, and how Config values become a ModelSpec and stages.
#include <catch2/catch.hpp>

#include "plan/from_config.h"
#include "plan/specs.h"

using namespace rr;
using namespace rr::plan;
using namespace rr::plan::testing;

namespace {

struct Known {
  const char* name;
  std::int64_t layers, hidden, heads, groups, head_dim, ffn, vocab, seq_length;
  bool qk_norm, tied;
  std::int64_t experts, top_k, expert_ffn;
  std::int64_t parameters;
  double active_billions, gflop_per_token;
};

// megatron.md 6.1 and 6.3; 0: not stated there.
const Known kKnown[] = {
    {"Qwen3 0.6B", 28, 1024, 16, 8, 128, 3072, 151936, 4096, true, true, 0, 0, 0, 596'049'920, 0,
     4.985},
    {"Qwen3 1.7B", 28, 2048, 16, 8, 128, 6144, 151936, 4096, true, true, 0, 0, 0, 1'720'574'976, 0,
     11.732},
    {"Qwen3 4B", 36, 2560, 32, 8, 128, 9728, 151936, 4096, true, true, 0, 0, 0, 4'022'468'096, 0,
     27.758},
    {"Qwen3 8B", 36, 4096, 32, 8, 128, 12288, 151936, 4096, true, false, 0, 0, 0, 8'190'735'360, 0,
     49.032},
    {"Qwen3 14B", 40, 5120, 40, 8, 128, 17408, 151936, 4096, true, false, 0, 0, 0, 14'768'307'200,
     0, 88.973},
    {"Qwen3 32B", 64, 5120, 64, 8, 128, 25600, 151936, 4096, true, false, 0, 0, 0, 32'762'123'264,
     0, 204.786},
    {"Qwen3 30B-A3B", 48, 2048, 32, 4, 128, 6144, 151936, 4096, true, false, 128, 8, 768,
     30'532'122'624, 3.353, 23.006},
    {"Qwen3 235B-A22B", 94, 4096, 64, 4, 128, 12288, 151936, 4096, true, false, 128, 8, 1536,
     235'093'634'560, 22.191, 148.035},
    {"Llama 3 8B", 32, 4096, 32, 8, 128, 14336, 128256, 8192, false, false, 0, 0, 0, 0, 0, 51.47},
    {"Llama 3 70B", 80, 8192, 64, 8, 128, 28672, 128256, 8192, false, false, 0, 0, 0, 0, 0, 449.2},
    {"Mixtral 8x7B", 32, 4096, 32, 8, 128, 14336, 32000, 4096, false, false, 8, 2, 14336, 0, 12.88,
     79.7},
};

ModelSpec spec_of(const Known& known) {
  ModelSpec m;
  m.num_layers = known.layers;
  m.hidden = known.hidden;
  m.heads = known.heads;
  m.query_groups = known.groups;
  m.head_dim = known.head_dim;
  m.ffn = known.ffn;
  m.vocab = m.padded_vocab = known.vocab;
  m.seq_length = known.seq_length;
  m.qk_norm = known.qk_norm;
  m.tied = known.tied;
  m.experts = known.experts;
  m.experts_per_token = known.top_k;
  m.expert_ffn = known.expert_ffn;
  m.layer_is_moe.assign(static_cast<std::size_t>(known.layers), known.experts > 0);
  return m;
}

recipe::Config small_config() {
  recipe::Config config;
  recipe::Model& m = config.model;
  m.num_layers = 6;
  m.hidden_size = 64;
  m.num_attention_heads = 4;
  m.vocab_size = 257;
  m.seq_length = 32;
  config.train.train_iters = 100;
  return config;
}

}  // namespace

TEST_CASE("parameter totals and FLOPs per token of real models equal the published ones") {
  for (const Known& known : kKnown) {
    INFO(known.name);
    const Plan plan = hand_made(spec_of(known), topology(1, 1, 1, 1));
    if (known.parameters > 0) CHECK(plan.total_parameters == known.parameters);
    if (known.active_billions > 0) {
      CHECK(static_cast<double>(plan.active_parameters) / 1e9 ==
            Approx(known.active_billions).epsilon(0.0005));
    }
    CHECK(plan.flops_per_token / 1e9 == Approx(known.gflop_per_token).epsilon(0.0005));
  }
}

TEST_CASE("DeepSeek-V2-Lite with latent attention and shared experts has its published size") {
  ModelSpec m;
  m.num_layers = 27;
  m.hidden = 2048;
  m.heads = m.query_groups = 16;
  m.head_dim = 128;
  m.ffn = 10944;
  m.vocab = m.padded_vocab = 102400;
  m.seq_length = 4096;
  m.latent = {0, 512, 128, 64, 128};
  m.experts = 64;
  m.experts_per_token = 6;
  m.expert_ffn = 1408;
  m.shared_expert_ffn = 2816;
  m.layer_is_moe.assign(27, true);
  m.layer_is_moe[0] = false;
  const Plan plan = hand_made(m, topology(1, 1, 8, 8));
  CHECK(plan.total_parameters == 15'706'484'224);
  // Six FLOPs for each active weight but the embedding and the routers, and the attention's square.
  const double square = 6.0 * 27 * 16 * (192 + 128) * 4096 / 2;
  const double matrices =
      6.0 * static_cast<double>(plan.active_parameters - 102400 * 2048 - 26 * 64 * 2048);
  CHECK(plan.flops_per_token == Approx(square + matrices).epsilon(0.0002));
}

TEST_CASE("FLOPs per sample equal the reference's own unit tests to three digits") {
  // test_flop_utils.py: Qwen3-30B-A3B 9.42e13, 235B 6.06e14, Llama3-8B 4.22e14, 70B 3.68e15.
  const std::pair<int, double> per_sample[] = {
      {6, 9.42e13}, {7, 6.06e14}, {8, 4.22e14}, {9, 3.68e15}};
  for (const auto& [index, flops] : per_sample) {
    const Known& known = kKnown[index];
    INFO(known.name);
    const Plan plan = hand_made(spec_of(known), topology(1, 1, 1, 1));
    CHECK(plan.flops_per_token * static_cast<double>(known.seq_length) ==
          Approx(flops).epsilon(0.002));
  }
}

TEST_CASE("unset sizes follow from the others, and the vocabulary is padded only when asked") {
  recipe::Config config = small_config();
  ModelSpec spec = make_model(config, Topology{});
  CHECK(spec.ffn == 256);
  CHECK(spec.head_dim == 16);
  CHECK(spec.query_groups == 4);
  CHECK(spec.padded_vocab == 257);
  CHECK(spec.output_std == Approx(0.02 / std::sqrt(12.0)));
  config.model.should_pad_vocab = true;
  CHECK(make_model(config, Topology{}).padded_vocab == 384);
  CHECK(make_model(config, topology(2, 1, 1, 1)).padded_vocab == 512);
  config.model.should_pad_vocab = false;
  config.tokenizer.use_tokenizer_vocab_size = true;
  config.tokenizer.vocab_size = 300;
  CHECK(make_model(config, Topology{}).vocab == 300);
  CHECK(make_model(config, Topology{}).padded_vocab == 384);
}

TEST_CASE("B034: a vocabulary that TP does not divide is padded, and the padding is not counted") {
  ModelSpec model = tiny_moe();
  model.vocab = 509;
  const auto padded = [&](int tensor) {
    model.padded_vocab = round_up(model.vocab, tensor);
    const Plan plan = hand_made(model, topology(tensor, 1, 1, 1));
    CHECK(plan.total_parameters == hand_made(model, topology(1, 1, 1, 1)).total_parameters);
    return plan.stages[0].parameters.front().shape[0];
  };
  CHECK(padded(1) == 509);
  CHECK(padded(2) == 255);
  CHECK(padded(4) == 128);
}

TEST_CASE("experts sit in the layers that moe_layer_freq names") {
  recipe::Config config = small_config();
  config.model.num_moe_experts = 8;
  config.model.moe_layer_freq.period = 2;
  CHECK(make_model(config, Topology{}).layer_is_moe ==
        std::vector<bool>{true, false, true, false, true, false});
  config.model.moe_layer_freq.list = {0, 1, 1, 1, 0, 0};
  CHECK(make_model(config, Topology{}).layer_is_moe ==
        std::vector<bool>{false, true, true, true, false, false});
  CHECK(make_model(config, Topology{}).expert_ffn == 256);
}

TEST_CASE("layers are dealt to stages as the reference deals them") {
  recipe::Model model = small_config().model;
  const Topology three = topology(1, 3, 1, 1);
  CHECK(split_layers(model, three) == std::vector<int>{2, 2, 2});
  model.account_for_embedding_in_pipeline_split = true;
  model.account_for_loss_in_pipeline_split = true;
  model.num_layers = 7;
  CHECK(split_layers(model, three) == std::vector<int>{2, 3, 2});
  model.account_for_embedding_in_pipeline_split = false;
  model.account_for_loss_in_pipeline_split = false;
  model.num_layers_in_first_pipeline_stage = 1;
  CHECK(split_layers(model, three) == std::vector<int>{1, 3, 3});
  model.num_layers_in_last_pipeline_stage = 2;
  CHECK(split_layers(model, three) == std::vector<int>{1, 4, 2});
  model.num_layers = 8;
  model.num_layers_in_first_pipeline_stage.reset();
  model.num_layers_in_last_pipeline_stage.reset();
  CHECK_THROWS_WITH(split_layers(model, three), Catch::Contains("8 layers do not fall into 3"));
}

TEST_CASE("chunks get their layers part by part, also where parts differ") {
  recipe::Model model = small_config().model;
  Topology t = topology(1, 2, 1, 1);
  t.chunks = 2;
  model.num_layers = 6;
  model.account_for_embedding_in_pipeline_split = true;
  model.account_for_loss_in_pipeline_split = true;
  CHECK(split_layers(model, t) == std::vector<int>{1, 2, 2, 1});
  model.account_for_embedding_in_pipeline_split = false;
  model.account_for_loss_in_pipeline_split = false;
  model.num_layers_in_first_pipeline_stage = 2;
  CHECK(split_layers(model, t) == std::vector<int>{1, 2, 1, 2});
  model.num_layers_in_first_pipeline_stage.reset();
  model.pipeline_model_parallel_layout = "Ett|t|t|ttL";
  const std::vector<int> parts = split_layers(model, t);
  CHECK(parts == std::vector<int>{2, 1, 1, 2});
  Plan plan;
  plan.model = tiny_moe();
  plan.model.num_layers = 6;
  plan.model.layer_is_moe.assign(6, true);
  plan.topology = t;
  lay_out(plan, 0, parts);
  CHECK(plan.stages[0].layers == std::vector<int>{1, 2, 4});
  CHECK(plan.stages[1].layers == std::vector<int>{3, 5, 6});
  CHECK(plan.stages[1].chunk_layers == std::vector<int>{1, 2});
  CHECK(rank_plan(plan, 0).bytes(Pool::device) > 0);
}

TEST_CASE("a layout string is expanded, and a broken one names its fault") {
  CHECK(layers_of_layout("Et*3|(tt|)*6L") == std::vector<int>{3, 2, 2, 2, 2, 2, 2, 0});
  CHECK(layers_of_layout("Ett|ttL") == std::vector<int>{2, 2});
  CHECK_THROWS_WITH(layers_of_layout("E(tt|*2"), Catch::Contains("without its )"));
  CHECK_THROWS_WITH(layers_of_layout("Et*"), Catch::Contains("needs a number"));
  CHECK_THROWS_WITH(layers_of_layout("Etx"), Catch::Contains("'x'"));
}

TEST_CASE("batches and sample counts follow the reference's arithmetic") {
  recipe::Config config = small_config();
  config.train.global_batch_size = 16;
  config.train.micro_batch_size = 2;
  config.validation.eval_iters = 5;
  config.validation.eval_interval = 30;
  const Topology t = topology(1, 2, 1, 4);
  const BatchPlan batch = make_batch(config, t);
  CHECK(batch.num_micro_batches == 2);
  CHECK(batch.eval_num_micro_batches == 2);
  const DataPlan data = make_data(config, make_model(config, t), batch);
  CHECK(data.mock);
  CHECK(data.samples == std::array<std::int64_t, 3>{1600, 4 * 5 * 16, 5 * 16});
  CHECK(data.split[0] == Approx(9999.0 / 10009.0));
  config.validation.eval_interval.reset();
  CHECK(make_data(config, make_model(config, t), make_batch(config, t)).samples[1] == 0);
}

TEST_CASE("data_path means prefixes, or weights and prefixes in turn") {
  recipe::Config config = small_config();
  const ModelSpec model = make_model(config, Topology{});
  const BatchPlan batch = make_batch(config, Topology{});
  config.dataset.data_path = std::vector<std::string>{"a", "b"};
  CHECK(make_data(config, model, batch).prefixes == std::vector<std::string>{"a", "b"});
  CHECK(make_data(config, model, batch).weights.empty());
  config.dataset.data_path = std::vector<std::string>{"0.3", "a", "0.7", "b"};
  CHECK(make_data(config, model, batch).prefixes == std::vector<std::string>{"a", "b"});
  CHECK(make_data(config, model, batch).weights == std::vector<double>{0.3, 0.7});
  CHECK_FALSE(make_data(config, model, batch).mock);
}
