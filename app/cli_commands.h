// The arguments of the commands (data, completion, man): few, and all their own.
#pragma once

#include <string>
#include <vector>

#include "app/cli.h"

namespace rr::app {

// A mistake about the argument `key` of the command line.
Problem argument_problem(const std::string& key, const std::string& what,
                         const std::string& remedy);

// `arguments` begin with the name of a command. Throws UsageError with all that is wrong.
CommandLine parse_command(const std::vector<std::string>& arguments);

}  // namespace rr::app
