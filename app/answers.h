// Everything but training: answers from one process, without a launch.
#pragma once

#include "app/cli.h"

namespace rr::app {

// Prints the answer to `line.action`, which is not train. Returns the exit code, 0 or 2. Throws
// UsageError for what cannot be answered.
int answer(const CommandLine& line, bool launched);

// Tells the environment on standard error, sorted; values whose name speaks of a secret are hidden.
void dump_environment();

}  // namespace rr::app
