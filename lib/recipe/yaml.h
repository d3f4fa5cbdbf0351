// YAML text to a tree of values with file:line origins. Never crashes on malformed input; every
// finding is a problem.
//
// Policy beyond YAML 1.2: duplicate keys are refused with both lines; << merges maps, the local
// value wins, then the earlier of a list; yes/no/on/off are truth values as in OmegaConf (marked,
// so that a truth-valued key can warn); depth and size are bounded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/node.h"

namespace rr::recipe {

// `name` stands in places ("recipes/a.yaml:12"). The root is a map, or null when there are errors
// that left nothing to read.
Node parse_yaml(std::string_view text, const std::string& name, OriginKind kind,
                std::vector<Problem>* problems);

// As parse_yaml for the file at `path`.
Node read_yaml(const std::string& path, const std::string& name, OriginKind kind,
               std::vector<Problem>* problems);

}  // namespace rr::recipe
