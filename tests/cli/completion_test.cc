// The completion scripts in the real shells, typed into a terminal, and the man page through groff.
//
// A shell that is not installed is skipped aloud: the program ends with 4, which ctest counts as
// skipped. scripts/setup --check installs all of them.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "cli/program.h"

namespace rr::test {
namespace {

using namespace std::chrono_literals;

void need_program(const std::string& name, const Scratch& folder) {
  if (shell("command -v " + name, folder).code == 0) return;
  std::fprintf(stderr, "skipped: %s is not installed\n", name.c_str());
  std::fflush(nullptr);
  std::_Exit(4);
}

// An interactive shell at a terminal of its own.
class Terminal {
 public:
  Terminal(const std::vector<std::string>& command, const Scratch& folder) {
    child_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    REQUIRE(child_ >= 0);
    if (child_ != 0) return;
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    // A home of its own: no user's settings, no history left behind.
    for (const char* name : {"HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"})
      setenv(name, folder.path().c_str(), 1);
    setenv("TERM", "dumb", 1);
    if (chdir(folder.path().c_str()) == 0) execvp(words[0], words.data());
    _exit(127);
  }
  ~Terminal() {
    kill(child_, SIGKILL);
    close(terminal_);
    waitpid(child_, nullptr, 0);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) {
    seen_.clear();
    REQUIRE(write(terminal_, keys.data(), keys.size()) == std::ssize(keys));
  }
  // Whether the terminal shows `text` within 20 seconds after the last keys.
  bool shows(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (seen_.find(text) == std::string::npos) {
      if (std::chrono::steady_clock::now() > end) return false;
      pollfd wanted{terminal_, POLLIN, 0};
      if (poll(&wanted, 1, 100) <= 0) continue;
      char buffer[4096];
      const ssize_t got = read(terminal_, buffer, sizeof buffer);
      if (got <= 0) return seen_.find(text) != std::string::npos;
      seen_.append(buffer, static_cast<std::size_t>(got));
    }
    return true;
  }
  const std::string& seen() const { return seen_; }

 private:
  int terminal_ = -1;
  pid_t child_ = -1;
  std::string seen_;
};

// What is typed, <tab> as \t, and the words that the program gets.
struct Row {
  std::string keys, words;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"--dry-r\t", "<--dry-run>"},
      {"--recipe tiny_g\t", "<--recipe><tiny_gpt_pretrain>"},
      {"--recipe=tiny_mo\t", "<--recipe=tiny_moe_pretrain>"},
      {"--recipe loc\t", "<--recipe><local.yaml>"},
      {"--model llama32\t--mode so\b\bsf\t", "<--model><llama32_1b><--mode><sft>"},
      {"--machine h2\t", "<--machine><h200_sxm>"},
      {"-et\t4 --save_dir fold\tx", "<-etp><4><--save_dir><folder/x>"},
      {"--explain optimizer.optimizer_off\t", "<--explain><optimizer.optimizer_offload_fraction>"},
      {"optimizer.optimizer_offload_f\t0.5", "<optimizer.optimizer_offload_fraction=0.5>"},
      {"optimizer.optimizer_cpu_off\tt\t", "<optimizer.optimizer_cpu_offload=true>"},
      {"++scheduler.lr_decay_style=cosi\t", "<++scheduler.lr_decay_style=cosine>"},
      {"comp\tfi\t", "<completion><fish>"},
      {"data bu\t--inp\tloc\t", "<data><build><--input><local.yaml>"},
  };
  return all;
}

// `load` are lines of the shell that define a run_recipe which prints its words, and the
// completion.
void check_shell(const std::string& name, const std::vector<std::string>& command,
                 const std::string& load) {
  const Scratch folder;
  need_program(name, folder);
  const Outcome script = shell("mkdir folder; echo >local.yaml; \"$RR\" completion " + name +
                                   " >completion && " + name + " -n completion",
                               folder);
  INFO(script.err);
  REQUIRE(script.code == 0);
  std::ofstream(folder.file("load")) << load;
  Terminal terminal(command, folder);
  terminal.type("source ./load\n");
  INFO(terminal.seen());
  REQUIRE(terminal.shows("loaded 1"));
  for (const Row& row : rows()) {
    terminal.type("run_recipe " + row.keys + "\n");
    const bool found = terminal.shows(row.words + "\r\n");
    INFO(row.keys << " gives " << terminal.seen());
    REQUIRE(found);
  }
}

}  // namespace

TEST_CASE("bash completes options, recipes, keys and values") {
  check_shell("bash", {"bash", "--norc", "--noprofile", "-i"},
              "run_recipe() { printf '<%s>' \"$@\"; echo; }\n"
              "source ./completion\nunset HISTFILE\necho loaded $((2 - 1))\n");
}

TEST_CASE("zsh completes options, recipes, keys and values") {
  check_shell("zsh", {"zsh", "-f", "-i"},
              "run_recipe() { printf '<%s>' \"$@\"; echo }\n"
              "autoload -Uz compinit && compinit -u -D\nsource ./completion\n"
              "echo loaded $((2 - 1))\n");
}

TEST_CASE("fish completes options, recipes, keys and values") {
  check_shell("fish", {"fish", "--no-config", "-i"},
              "function run_recipe; printf '<%s>' $argv; echo; end\n"
              "source ./completion\necho loaded (math 2 - 1)\n");
}

TEST_CASE("the man page has no fault that groff warns of") {
  const Scratch folder;
  need_program("groff", folder);
  const Outcome page =
      shell("\"$RR\" man >page && groff -man -ww -Tascii -P-c -P-b -P-u page", folder);
  INFO(page.err);
  REQUIRE(page.code == 0);
  REQUIRE(page.err.empty());
  for (const char* part : {"NAME", "SYNOPSIS", "OPTIONS", "ENVIRONMENT", "EXIT STATUS",
                           "--tensor_model_parallel_size", "RUN_RECIPE_HOME"}) {
    INFO(part);
    REQUIRE(page.out.find(part) != std::string::npos);
  }
}

}  // namespace rr::test
