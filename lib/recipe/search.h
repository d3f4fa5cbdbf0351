// Finds recipes, presets and machines in the search paths.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rr::recipe {

struct Found {
  std::string path;   // absolute
  std::string shown;  // relative to the current directory or to the search path it was found in
};

// `name` is a file, or the stem of SEARCH_PATH/folder/name.yaml.
std::optional<Found> find_file(const std::string& name, const std::string& folder,
                               const std::vector<std::string>& search_paths);

// Stems of all files of a folder in all search paths, sorted, each once.
std::vector<std::string> list_stems(const std::string& folder,
                                    const std::vector<std::string>& search_paths);

// "Known are a, b, c." or the nearest names first, for a name that was not found.
std::string known_names(const std::string& name, const std::vector<std::string>& stems);

// `name` without a trailing "_config".
std::string without_config(const std::string& name);

}  // namespace rr::recipe
