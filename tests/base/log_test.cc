// What standard error shows, by rank and level.
#include "base/log.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

// Runs `work` with standard error going to a file; returns what it wrote.
template <class Work>
std::string shown(const Work& work) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int before = dup(2);
  dup2(fileno(file), 2);
  work();
  dup2(before, 2);
  close(before);
  std::string text(static_cast<std::size_t>(lseek(fileno(file), 0, SEEK_END)), '\0');
  CHECK(pread(fileno(file), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  std::fclose(file);
  return text;
}

TEST_CASE("rank 0 shows information, warnings and errors, one line each") {
  rr::start_logging(0, 4, false);
  CHECK(shown([] {
          rr::log(rr::LogLevel::debug, "hidden");
          rr::log_info("100% of {braces} stay");
          rr::log_warning("nothing is offloaded");
          rr::log_error("disk full");
        }) == "100% of {braces} stay\nwarning: nothing is offloaded\nerror: disk full\n");
}

TEST_CASE("other ranks show warnings and errors only, with their rank on every line") {
  rr::start_logging(3, 4, false);
  CHECK(shown([] {
          rr::log_info("hidden");
          rr::log_warning("one\ntwo");
        }) == "[rank 3] warning: one\n[rank 3] two\n");
  rr::start_logging(0, 1, false);
}

TEST_CASE("a problem's own severity word is not said twice") {
  rr::start_logging(0, 1, false);
  CHECK(shown([] {
          rr::log_error("error: optimizer.lr: is -1");
          rr::log_error("warning: a: x\nerror: b: y");
        }) == "error: optimizer.lr: is -1\nwarning: a: x\nerror: b: y\n");
}

TEST_CASE("colour is what the caller said, not what the stream is") {
  rr::start_logging(0, 1, true);
  const std::string text = shown([] { rr::log_error("red"); });
  CHECK(text.find("\033[") != std::string::npos);
  CHECK(text.find("error: red") != std::string::npos);
  rr::start_logging(0, 1, false);
  CHECK(shown([] { rr::log_error("plain"); }).find('\033') == std::string::npos);
}

TEST_CASE("lines of many threads are not mixed") {
  const std::string line(300, 'x');
  const std::string text = shown([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 100; ++j) rr::log_info(line);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  REQUIRE(text.size() == 400 * 301);
  for (std::size_t i = 0; i < 400; ++i) REQUIRE(text.substr(i * 301, 301) == line + "\n");
}

}  // namespace
