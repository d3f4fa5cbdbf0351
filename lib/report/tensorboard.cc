// One event file; records gather in memory and go out at flush().
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "report/event_record.h"
#include "report/report.h"

namespace rr::report {

struct TensorBoard::State {
  std::string path;
  int descriptor = -1;
  std::string pending;

  ~State() {
    if (descriptor >= 0) close(descriptor);
  }

  void write_out() {
    std::size_t done = 0;
    while (done < pending.size()) {
      const ssize_t written = ::write(descriptor, pending.data() + done, pending.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        const std::string reason = std::strerror(errno);
        pending.erase(0, done);
        throw Error(fmt::format("cannot write {}: {}", path, reason));
      }
      done += static_cast<std::size_t>(written);
    }
    pending.clear();
  }
};

namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

[[noreturn]] void refuse(const std::string& folder, const std::string& reason) {
  throw UsageError({Severity::error, "logger.tensorboard_dir", "",
                    fmt::format("{} cannot hold event files: {}.", folder, reason),
                    "Give a folder that can be written, or null."});
}

}  // namespace

TensorBoard::TensorBoard(const std::string& folder) : state_(std::make_unique<State>()) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) refuse(folder, error.message());
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  const std::string stem =
      fmt::format("{}/events.out.tfevents.{}.{}.{}", folder, static_cast<std::int64_t>(now.count()),
                  host_name(), getpid());
  // The last number tells writers of one process and second apart.
  for (int n = 0; state_->descriptor < 0; ++n) {
    state_->path = fmt::format("{}.{}", stem, n);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC;
    state_->descriptor = open(state_->path.c_str(), flags, 0666);
    if (state_->descriptor < 0 && errno != EEXIST) refuse(folder, std::strerror(errno));
  }
  state_->pending = version_record(now.count());
  flush();
}

TensorBoard::~TensorBoard() {
  try {
    flush();
  } catch (const std::exception&) {  // a destructor has nobody to tell; flush() before it has
  }
}

void TensorBoard::scalar(const std::string& tag, double value, std::int64_t step,
                         double wall_time) {
  state_->pending += scalar_record(tag, value, step, wall_time);
}

void TensorBoard::flush() { state_->write_out(); }

}  // namespace rr::report
