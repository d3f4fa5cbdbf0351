// What people read and no program does: the last table and the progress bar.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "report/report.h"

namespace rr::report {
namespace {

std::string verdict(const ComparisonRow& row) {
  const std::int64_t difference = row.measured - row.planned;
  if (difference == 0) return "equal";
  const std::string sign = difference > 0 ? "+" : "";
  if (row.exact || row.planned == 0) return sign + format_count(difference) + " B";
  const double percent = 100.0 * static_cast<double>(difference) / static_cast<double>(row.planned);
  return fmt::format("{:+.1f} % (estimate)", percent);
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  return fmt::format("{}:{:02d}:{:02d}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

std::string comparison_table(const std::vector<ComparisonRow>& rows) {
  std::vector<std::array<std::string, 5>> cells = {
      {"memory", "pool", "planned (B)", "measured (B)", "difference"}};
  for (const ComparisonRow& row : rows) {
    cells.push_back(
        {row.what, row.pool, format_count(row.planned), format_count(row.measured), verdict(row)});
  }
  std::array<std::size_t, 5> widths{};
  for (const auto& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : cells) {
    text += fmt::format("{:<{}}  {:<{}}  {:>{}}  {:>{}}  {}\n", line[0], widths[0], line[1],
                        widths[1], line[2], widths[2], line[3], widths[3], line[4]);
  }
  return text;
}

std::string progress_bar(std::int64_t iteration, std::int64_t total, double ms_per_iteration,
                         double loss, int width) {
  total = std::max<std::int64_t>(total, 1);
  iteration = std::clamp<std::int64_t>(iteration, 0, total);
  const double left = ms_per_iteration / 1000 * static_cast<double>(total - iteration);
  const std::string numbers = fmt::format(" {}/{}  loss {:.4f}  {:.1f} ms  left {}", iteration,
                                          total, loss, ms_per_iteration, clock_text(left));
  // One column stays free: terminals wrap when the last one is written.
  const std::int64_t room = width - 1;
  const std::int64_t cells = room - static_cast<std::int64_t>(numbers.size()) - 2;
  std::string bar;
  if (cells >= 4) {
    const std::int64_t full = cells * iteration / total;
    bar = fmt::format("[{:=<{}}{:<{}}]", "", full, "", cells - full);
  }
  return "\r" +
         (bar + numbers).substr(0, static_cast<std::size_t>(std::max<std::int64_t>(room, 0)));
}

}  // namespace rr::report
