// run_config.yaml and metrics.jsonl. Each line of metrics goes out in one write call, so a killed
// run keeps every line it wrote, and a full disk leaves no half line.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "report/report.h"

namespace rr::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw UsageError({Severity::error, "logger.run_dir", "",
                    fmt::format("{} cannot be the run folder: {}.", path, reason),
                    "Give a folder that can be written, with space on its disk."});
}

// The first metrics.jsonl.N that does not exist.
fs::path free_name(const fs::path& path) {
  for (int n = 1;; ++n) {
    fs::path candidate = path;
    candidate += fmt::format(".{}", n);
    if (!fs::exists(candidate)) return candidate;
  }
}

}  // namespace

struct RunFolder::State {
  std::string path;  // of metrics.jsonl
  int descriptor = -1;
  off_t length = 0;

  ~State() {
    if (descriptor >= 0) close(descriptor);
  }

  // JSON has no NaN and no infinity: dump() writes null for them.
  void append(const ordered_json& object) {
    const std::string line = object.dump() + "\n";
    std::size_t done = 0;
    while (done < line.size()) {
      const ssize_t written = ::write(descriptor, line.data() + done, line.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        const std::string reason = std::strerror(errno);
        if (ftruncate(descriptor, length) != 0) errno = 0;  // best effort; the reason is the news
        throw Error(fmt::format("cannot write {}: {}", path, reason));
      }
      done += static_cast<std::size_t>(written);
    }
    length += static_cast<off_t>(line.size());
  }
};

RunFolder::RunFolder(const std::string& path, const std::string& config_yaml)
    : state_(std::make_unique<State>()) {
  const fs::path folder(path);
  state_->path = (folder / "metrics.jsonl").string();
  try {
    fs::create_directories(folder);
    NewFile config((folder / "run_config.yaml").string());
    config.write(config_yaml);
    config.publish();
    // An earlier run's numbers are kept, under another name.
    if (fs::exists(state_->path)) fs::rename(state_->path, free_name(state_->path));
  } catch (const fs::filesystem_error& error) {
    refuse(path, error.code().message());
  } catch (const Error& error) {
    refuse(path, error.what());
  }
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC;
  state_->descriptor = open(state_->path.c_str(), flags, 0666);
  if (state_->descriptor < 0) refuse(path, std::strerror(errno));
}

RunFolder::~RunFolder() = default;

void RunFolder::write(const Iteration& at, const std::map<std::string, double>& extra) {
  ordered_json object = {{"iteration", at.iteration},
                         {"consumed_samples", at.consumed_samples},
                         {"skipped_samples", at.skipped_samples},
                         {"elapsed_ms", at.elapsed_ms}};
  if (at.tflops_per_gpu) object["tflops_per_gpu"] = *at.tflops_per_gpu;
  object["learning_rate"] = at.learning_rate;
  object["global_batch_size"] = at.global_batch;
  for (const auto& [name, loss] : at.losses) object[name] = loss;
  object["loss_scale"] = at.loss_scale;
  if (at.grad_norm) object["grad_norm"] = *at.grad_norm;
  if (at.num_zeros) object["num_zeros"] = *at.num_zeros;
  if (at.params_norm) object["params_norm"] = *at.params_norm;
  object["skipped_iterations"] = at.skipped_iterations;
  object["nan_iterations"] = at.nan_iterations;
  for (const auto& [name, value] : extra) object[name] = value;
  state_->append(object);
}

void RunFolder::write_validation(std::int64_t iteration, double loss, std::int64_t tokens) {
  state_->append({{"iteration", iteration},
                  {"validation_loss", loss},
                  {"validation_ppl", std::exp(loss)},
                  {"validation_tokens", tokens}});
}

}  // namespace rr::report
