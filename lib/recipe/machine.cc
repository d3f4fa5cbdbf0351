// Machine files: configs/machines/NAME.yaml.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/text.h"
#include "recipe/search.h"
#include "recipe/tree.h"
#include "recipe/yaml.h"

namespace rr::recipe {
namespace {

struct Rate {
  const char* key;
  double Machine::*real = nullptr;
  std::int64_t Machine::*whole = nullptr;
};

constexpr Rate kRates[] = {
    {"device_bytes", nullptr, &Machine::device_bytes},
    {"host_bytes", nullptr, &Machine::host_bytes},
    {"devices_per_node", nullptr, &Machine::devices_per_node},
    {"device_tflops", &Machine::device_tflops},
    {"device_gbps", &Machine::device_gbps},
    {"link_gbps", &Machine::link_gbps},
    {"host_gbps", &Machine::host_gbps},
    {"intra_gbps", &Machine::intra_gbps},
    {"inter_gbps", &Machine::inter_gbps},
    {"collective_latency_us", &Machine::collective_latency_us},
    {"host_core_gparams", &Machine::host_core_gparams},
    {"host_cores", nullptr, &Machine::host_cores},
};

const Rate* find_rate(const std::string& key) {
  for (const Rate& rate : kRates) {
    if (key == rate.key) return &rate;
  }
  return nullptr;
}

// False when the value is not a number above 0 (of a whole kind where the rate is).
bool set_rate(const Rate& rate, const Node& value, Machine* machine) {
  double number = 0;
  if (value.kind == Kind::integer && !value.too_big) number = static_cast<double>(value.integer);
  if (value.kind == Kind::real) number = value.real;
  if (!(number > 0) || std::isinf(number)) return false;
  if (rate.real != nullptr) {
    machine->*rate.real = number;
    return true;
  }
  if (number != std::trunc(number) || number > 9e15) return false;
  machine->*rate.whole = static_cast<std::int64_t>(number);
  return true;
}

void read_rates(const Node& root, const std::string& shown, Machine* machine,
                std::vector<Problem>* problems) {
  std::vector<std::string> names;
  for (const Rate& rate : kRates) {
    names.emplace_back(rate.key);
    if (root.find(rate.key) == nullptr) {
      problems->push_back({Severity::error, rate.key, shown, "is missing", ""});
    }
  }
  for (const Entry& entry : root.entries) {
    const std::string where = place_of(entry.value.origin);
    const Rate* rate = find_rate(entry.name());
    if (rate == nullptr) {
      const std::vector<std::string> near = nearest(entry.name(), names, 1);
      problems->push_back({Severity::error, entry.name(), where, "a machine has no such key",
                           near.empty() ? fmt::format("It has {}.", join(names, ", "))
                                        : fmt::format("Did you mean {}?", near[0])});
    } else if (!set_rate(*rate, entry.value, machine)) {
      problems->push_back({Severity::error, entry.name(), where,
                           fmt::format("{} is not a {}number above 0", describe(entry.value),
                                       rate->whole != nullptr ? "whole " : ""),
                           ""});
    }
  }
}

}  // namespace

Machine load_machine(const std::string& name, const std::vector<std::string>& search_paths) {
  const std::optional<Found> found = find_file(name, "configs/machines", search_paths);
  if (!found) {
    throw UsageError({Severity::error, "--machine", "",
                      fmt::format("there is no machine '{}'.", name),
                      known_names(name, list_machines(search_paths))});
  }
  Machine machine;
  machine.name = std::filesystem::path(found->path).stem().string();
  std::vector<Problem> problems;
  const Node root = read_yaml(found->path, found->shown, OriginKind::recipe, &problems);
  if (root.kind == Kind::map) read_rates(root, found->shown, &machine, &problems);
  if (!problems.empty()) throw UsageError(problems);
  return machine;
}

std::vector<std::string> list_machines(const std::vector<std::string>& search_paths) {
  return list_stems("configs/machines", search_paths);
}

}  // namespace rr::recipe
