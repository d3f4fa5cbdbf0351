// Runs the tables of rules, and the generic rules about plan-only keys and keys without effect.
#include "recipe/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace rr::recipe {
namespace {

bool touches_refused(const Facts& facts, const Rule& rule) {
  return std::any_of(rule.keys.begin(), rule.keys.end(),
                     [&facts](const char* key) { return facts.refused.count(key) > 0; });
}

// The key a problem is about: the first one that a person set, so that the place helps.
const char* blamed(const Facts& facts, const Rule& rule) {
  for (const char* key : rule.keys) {
    if (facts.is_set(key)) return key;
  }
  return rule.keys.front();
}

bool is_initial(const Slot& slot, const Config& config) {
  return yaml_line(to_node(slot, config)) == slot.field.initial;
}

void check_plan_only(Facts& facts, std::vector<Problem>* problems) {
  for (const Slot& slot : slots()) {
    const std::string& key = slot.field.key;
    if (slot.field.support != Support::plan_only || is_initial(slot, facts.config)) continue;
    // What merely follows from something else is said there.
    if (facts.origin(key) == OriginKind::derived) continue;
    problems->push_back({Severity::plan_only, key, facts.where(key),
                         fmt::format("{} can be planned but not run yet", facts.show(key)),
                         fmt::format("Use {}={}.", key, slot.field.initial)});
  }
}

// One warning for all keys that a recipe file carries, so that recipes of the reference stay
// readable; one each for those set for this run.
void check_no_effect(Facts& facts, std::vector<Problem>* problems) {
  std::vector<std::string> in_file;
  std::string where;
  for (const Slot& slot : slots()) {
    const std::string& key = slot.field.key;
    if (slot.field.support != Support::no_effect || !facts.is_set(key) ||
        is_initial(slot, facts.config)) {
      continue;
    }
    if (facts.origin(key) == OriginKind::recipe) {
      if (in_file.empty()) where = facts.where(key);
      in_file.push_back(key);
    } else {
      problems->push_back(
          {Severity::warning, key, facts.where(key),
           fmt::format("{} has no effect here: {}", facts.show(key), slot.field.meaning), ""});
    }
  }
  if (!in_file.empty()) {
    problems->push_back({Severity::warning, in_file.front(), where,
                         fmt::format("these keys have no effect here: {}", join(in_file, ", ")),
                         ""});
  }
}

}  // namespace

std::vector<const Rule*> all_rules() {
  std::vector<const Rule*> all;
  for (const auto* table :
       {&model_rules(), &parallel_rules(), &batch_rules(), &moe_rules(), &offload_rules(),
        &optimizer_rules(), &recompute_rules(), &run_rules()}) {
    for (const Rule& rule : *table) all.push_back(&rule);
  }
  return all;
}

void check_rules(Facts& facts, std::vector<Problem>* problems) {
  for (const Rule* rule : all_rules()) {
    if (touches_refused(facts, *rule)) continue;
    if (Verdict verdict = rule->check(facts)) {
      const char* key = blamed(facts, *rule);
      problems->push_back({rule->severity, key, facts.where(key), std::move(verdict->what),
                           std::move(verdict->remedy)});
    }
  }
  check_plan_only(facts, problems);
  check_no_effect(facts, problems);
}

std::vector<std::string> rules_about(const std::string& key) {
  std::vector<std::string> texts;
  for (const Rule* rule : all_rules()) {
    for (const char* named : rule->keys) {
      if (key == named) {
        texts.emplace_back(rule->summary);
        break;
      }
    }
  }
  return texts;
}

}  // namespace rr::recipe
