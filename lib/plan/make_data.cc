// Config to batch sizes and data.
#include <algorithm>
#include <cstdlib>

#include "plan/from_config.h"

namespace rr::plan {

BatchPlan make_batch(const recipe::Config& config, const Topology& topology) {
  const recipe::Train& train = config.train;
  const recipe::Validation& validation = config.validation;
  BatchPlan batch;
  batch.micro_batch = train.micro_batch_size.value_or(1);
  const std::int64_t at_once = batch.micro_batch * topology.data;
  batch.global_batch = train.global_batch_size.value_or(at_once);
  batch.num_micro_batches = static_cast<int>(batch.global_batch / at_once);
  batch.micro_batch_group =
      static_cast<int>(config.model.microbatch_group_size_per_vp_stage.value_or(0));
  batch.train_iters =
      train.train_iters.value_or(train.train_samples.value_or(0) / batch.global_batch);
  batch.exit_interval = train.exit_interval.value_or(0);
  batch.exit_after_minutes = train.exit_duration_in_mins.value_or(0.0);
  batch.eval_micro_batch = validation.eval_micro_batch_size.value_or(batch.micro_batch);
  batch.eval_global_batch = validation.eval_global_batch_size.value_or(batch.global_batch);
  batch.eval_num_micro_batches =
      static_cast<int>(batch.eval_global_batch / (batch.eval_micro_batch * topology.data));
  batch.eval_iters = validation.eval_iters.value_or(0);
  batch.eval_interval = batch.eval_iters > 0 ? validation.eval_interval.value_or(0) : 0;
  RR_CHECK(batch.num_micro_batches > 0, "rules let an empty batch pass");
  return batch;
}

namespace {

// "9999,8,2" -> shares that add up to 1; missing ones are 0.
std::array<double, 3> parse_split(const std::string& text) {
  std::array<double, 3> shares = {0, 0, 0};
  std::size_t index = 0;
  for (std::size_t i = 0; i < text.size() && index < shares.size();) {
    const std::size_t begin = text.find_first_of(".0123456789", i);
    if (begin == std::string::npos) break;
    const std::size_t end = std::min(text.find_first_not_of(".0123456789", begin), text.size());
    shares[index++] = std::strtod(text.substr(begin, end - begin).c_str(), nullptr);
    i = end;
  }
  const double sum = shares[0] + shares[1] + shares[2];
  if (sum <= 0) {
    throw UsageError(Problem{.key = "dataset.split",
                             .what = "'" + text + "' gives no split any share.",
                             .remedy = "Write shares such as 9999,8,2."});
  }
  for (double& share : shares) share /= sum;
  return shares;
}

// `dataset.data_path`: prefixes, or weight and prefix in turn.
recipe::Blend parse_data_path(const std::vector<std::string>& words) {
  recipe::Blend blend;
  std::vector<double> weights;
  const auto number = [](const std::string& word) {
    char* end = nullptr;
    const double value = std::strtod(word.c_str(), &end);
    return !word.empty() && *end == '\0' ? std::optional(value) : std::nullopt;
  };
  const bool weighted = words.size() > 1 && words.size() % 2 == 0 && number(words[0]);
  for (std::size_t i = 0; i < words.size(); i += weighted ? 2 : 1) {
    if (weighted) weights.push_back(number(words[i]).value_or(0.0));
    blend.prefixes.push_back(words[weighted ? i + 1 : i]);
  }
  if (weighted) blend.weights = weights;
  return blend;
}

}  // namespace

DataPlan make_data(const recipe::Config& config, const ModelSpec& model, const BatchPlan& batch) {
  const recipe::Dataset& d = config.dataset;
  DataPlan plan;
  recipe::OptBlend blend = d.blend;
  if (!blend && d.data_path && !d.data_path->empty()) blend = parse_data_path(*d.data_path);
  if (blend) {
    plan.prefixes = blend->prefixes;
    plan.weights = blend->weights.value_or(std::vector<double>{});
  }
  if (d.blend_per_split) {
    for (std::size_t i = 0; i < std::min<std::size_t>(3, d.blend_per_split->size()); ++i) {
      plan.split_prefixes[i] = (*d.blend_per_split)[i].prefixes;
      plan.split_weights[i] = (*d.blend_per_split)[i].weights.value_or(std::vector<double>{});
    }
  }
  plan.mock = !blend && !d.blend_per_split;
  plan.split = parse_split(d.split);
  // megatron.md 9.3
  plan.samples[0] = batch.train_iters * batch.global_batch;
  if (batch.eval_interval > 0) {
    const std::int64_t one = batch.eval_iters * batch.eval_global_batch;
    plan.samples[1] = (batch.train_iters / batch.eval_interval + 1) * one;
    plan.samples[2] = one;
  }
  plan.seq_length = model.seq_length;
  plan.seed = static_cast<std::uint64_t>(d.random_seed);
  plan.cache_path = d.path_to_cache.value_or("");
  plan.surplus = d.mid_level_dataset_surplus;
  plan.reset_position_ids = d.reset_position_ids;
  plan.reset_attention_mask = d.reset_attention_mask;
  plan.eod_mask_loss = d.eod_mask_loss;
  plan.drop_last_partial_validation = d.drop_last_partial_validation_sequence;
  plan.add_extra_token = d.add_extra_token_to_sequence;
  plan.vocab = model.vocab;
  if (config.tokenizer.tokenizer_type == "ByteTokenizer") plan.end_of_document = 256;
  if (config.tokenizer.tokenizer_type == "NullTokenizer") {
    plan.end_of_document = config.tokenizer.null_tokenizer_eod_id.value_or(
        config.tokenizer.vocab_size.value_or(model.vocab) - 1);
  }
  return plan;
}

}  // namespace rr::plan
