// The rules as tables: what must hold, the keys it concerns, and what to say when it does not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "recipe/facts.h"

namespace rr::recipe {

struct Finding {
  std::string what;    // the reference's searchable text first, then our values
  std::string remedy;  // what works instead
};
using Verdict = std::optional<Finding>;

struct Rule {
  Severity severity;
  std::vector<const char*> keys;  // the first is the one to blame unless only others are set
  const char* summary;            // for --explain: what must hold
  Verdict (*check)(const Facts& facts);
};

const std::vector<Rule>& model_rules();
const std::vector<Rule>& parallel_rules();
const std::vector<Rule>& batch_rules();
const std::vector<Rule>& moe_rules();
const std::vector<Rule>& offload_rules();
const std::vector<Rule>& fine_grained_rules();
const std::vector<Rule>& optimizer_rules();
const std::vector<Rule>& run_rules();  // what can be planned only
const std::vector<Rule>& recompute_rules();

// In the order in which problems are reported.
std::vector<const Rule*> all_rules();

}  // namespace rr::recipe
