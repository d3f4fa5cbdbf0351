// From recipe text to a checked Config. No torch, no MPI, no GPU; reads files, writes none.
//
//   recipe text -> nodes with file:line -> overrides -> typed Config -> derived values -> rules
//
// Policy: all problems of an input are collected and returned together; nothing is thrown for a
// user's mistake. After load() nothing changes a value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/base.h"
#include "recipe/config.h"

namespace rr::recipe {

// A convenience flag of the command line that stands for a key: {"-tp", "model.tensor_..", "2"}.
struct Flag {
  std::string spelling;
  std::string key;
  std::string value;
};

struct Request {
  std::string recipe;                     // a name ("tiny_gpt_pretrain", ".._config") or a file
  std::vector<Flag> flags;                // stronger than the recipe, weaker than overrides
  std::vector<std::string> overrides;     // "a.b=v", "+a.b=v", "++a.b=v", "~a.b", in order
  std::optional<int> world_size;          // ranks of the launch; without it dist.world_size is used
  std::vector<std::string> search_paths;  // folders that hold recipes/ and configs/
};

enum class OriginKind : std::uint8_t {
  initial,
  preset,
  recipe,
  environment,
  flag,
  override_,
  derived
};

// Where a value came from.
struct Origin {
  OriginKind kind = OriginKind::initial;
  std::string
      detail;  // "recipes/a.yaml:12", "override 3", "-tp", "derived from dataset.seq_length"
};

struct Recipe {
  std::string name;  // without "_config"
  std::string file;
  Config config;
  std::map<std::string, Origin> origins;  // by dotted key; missing = initial
  std::vector<Problem> problems;          // errors first, in the order of the rules
  int world_size = 1;

  bool has_errors() const;
};

// Reads, overrides, types, derives and checks. Problems are in the result.
Recipe load(const Request& request);

// The search paths in the order they are tried: $RUN_RECIPE_HOME, the source tree the program was
// built from, the current directory.
std::vector<std::string> default_search_paths();

// ---- what is known about keys -----------------------------------------------------------------

enum class Support : std::uint8_t {
  run,        // works
  plan_only,  // a value other than the initial one can be planned; a run is refused
  no_effect,  // accepted for recipes of the reference; there is nothing here to switch
};

struct Field {
  std::string key;      // "optimizer.lr"
  std::string type;     // "int", "real", "bool", "text", "int?", "list of text", ...
  std::string initial;  // as YAML: "0.01", "null"
  std::string range;    // ">= 1", "[0, 1]", "linear | cosine", ""
  std::string unit;     // "tokens", "bytes", ""
  std::string meaning;  // one sentence; keys of our own say "ours"
  Support support = Support::run;
};

const std::vector<Field>& fields();

// Value of `key` in `config` as one line of YAML. `key` must exist.
std::string value_text(const Config& config, const std::string& key);

// The whole Config as YAML that load() reads back to an equal Config. With `recipe`, values that
// differ from their default carry their origin as a comment.
std::string dump(const Config& config, const Recipe* recipe = nullptr);

// Keys whose value differs from the default: key, value, origin; in the order of fields.def.
struct Change {
  std::string key;
  std::string value;
  Origin origin;
};
std::vector<Change> changes(const Recipe& recipe);
std::string to_string(const Origin& origin);

// Text for --explain: type, default, range, unit, meaning, the rules that name the key and, with a
// recipe, its value there and who set it. Throws UsageError for an unknown key or group, naming
// the nearest. A group name explains all its keys, a line each.
std::string explain(const std::string& key, const Recipe* recipe = nullptr);

// Text of configs/reference.yaml: every key with type, default, range and meaning.
std::string reference_yaml();

struct RecipeInfo {
  std::string name;
  std::string summary;  // the first comment line of the file
  std::string file;
};
std::vector<RecipeInfo> list_recipes(const std::vector<std::string>& search_paths);

// ---- machines ---------------------------------------------------------------------------------

// A node type, for plans. Rates are sustained ones; every number's source stands in its file.
struct Machine {
  std::string name = "this-machine";
  std::int64_t device_bytes = 0;  // memory of one device, usable
  std::int64_t host_bytes = 0;    // of one node
  std::int64_t devices_per_node = 1;
  double device_tflops = 0;          // dense bf16 matrix products, sustained, one device
  double device_gbps = 0;            // device memory, GB/s, one device
  double link_gbps = 0;              // device <-> host, one device, one direction
  double host_gbps = 0;              // DRAM of one node
  double intra_gbps = 0;             // between devices of one node, one device
  double inter_gbps = 0;             // between nodes, one device
  double collective_latency_us = 0;  // one step of a collective
  double host_core_gparams = 0;      // Adam on one host core, 1e9 parameters per second
  std::int64_t host_cores = 1;       // of one node
};

// Reads configs/machines/NAME.yaml (or a file). Throws UsageError, naming the known machines.
Machine load_machine(const std::string& name, const std::vector<std::string>& search_paths);
std::vector<std::string> list_machines(const std::vector<std::string>& search_paths);

// ---- Hugging Face ---------------------------------------------------------------------------

// Model keys that a Hugging Face config.json (either spelling, transformers 4 or 5) implies, for
// model types llama, qwen3, qwen3_moe, mixtral and olmoe: {"hidden_size", "64"} without the group.
// Throws UsageError: unreadable file, unknown model type, unsupported rope scaling.
std::vector<std::pair<std::string, std::string>> read_hf_config(const std::string& path);

}  // namespace rr::recipe
