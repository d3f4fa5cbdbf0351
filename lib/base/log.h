// Diagnostics go to standard error through here; data (plans, the training line) goes to standard
// output by its owner.
//
// Policy: whether output is coloured is decided once by the caller of start_logging, never by
// isatty: under mpirun standard output is always a terminal.
#pragma once

#include <string_view>

namespace rr {

enum class LogLevel { debug, info, warning, error };

// Call once at program start. Ranks other than 0 show warnings and errors only, prefixed with their
// rank when the job has several.
void start_logging(int rank, int world_size, bool colour);

// Thread safe. One line each, flushed at once.
void log(LogLevel level, std::string_view text);
inline void log_info(std::string_view text) { log(LogLevel::info, text); }
inline void log_warning(std::string_view text) { log(LogLevel::warning, text); }
inline void log_error(std::string_view text) { log(LogLevel::error, text); }

}  // namespace rr
