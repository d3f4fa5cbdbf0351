// Diagnostics through spdlog: one sink on standard error, flushed after every line.
#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ansicolor_sink.h>

#include <memory>
#include <string>

namespace rr {
namespace {

struct Logging {
  std::shared_ptr<spdlog::logger> logger;
  std::string prefix;
};

Logging make_logging(int rank, int world_size, bool colour) {
  const auto mode = colour ? spdlog::color_mode::always : spdlog::color_mode::never;
  auto sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>(mode);
  if (colour) {
    sink->set_color(spdlog::level::debug, sink->dark);
    sink->set_color(spdlog::level::info, sink->reset);
    sink->set_color(spdlog::level::warn, sink->yellow_bold);
    sink->set_color(spdlog::level::err, sink->red_bold);
  }
  Logging made;
  made.logger = std::make_shared<spdlog::logger>("", std::move(sink));
  made.logger->set_pattern("%^%v%$");
  made.logger->set_level(rank == 0 ? spdlog::level::info : spdlog::level::warn);
  made.logger->flush_on(spdlog::level::trace);
  if (rank != 0 && world_size > 1) made.prefix = fmt::format("[rank {}] ", rank);
  return made;
}

// Never destroyed: worker threads may still log while the program ends.
Logging& logging() {
  static Logging& instance = *new Logging(make_logging(0, 1, false));
  return instance;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Texts of problems bring their own "error: ", others get it here.
std::string_view word_for(LogLevel level, std::string_view line) {
  if (line.starts_with("error: ") || line.starts_with("warning: ")) return "";
  if (level == LogLevel::error) return "error: ";
  if (level == LogLevel::warning) return "warning: ";
  return "";
}

}  // namespace

void start_logging(int rank, int world_size, bool colour) {
  logging() = make_logging(rank, world_size, colour);
}

void log(LogLevel level, std::string_view text) {
  const Logging& current = logging();
  const auto severity = spdlog_level(level);
  if (!current.logger->should_log(severity)) return;
  const std::string_view word = word_for(level, text);
  std::string lines = fmt::format("{}{}", current.prefix, word);
  for (const char c : text) {
    lines += c;
    if (c == '\n') lines += current.prefix;
  }
  current.logger->log(severity, spdlog::string_view_t(lines));
}

}  // namespace rr
