// Completion scripts for bash, zsh and fish, made from the table of options, the recipes and the
// keys. They hold all words themselves: starting the program at every TAB would take too long.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace rr::app {

// A word and what it means.
struct Word {
  std::string text;
  std::string meaning;
};

// The words that are not in the table of options.
struct Words {
  std::vector<Word> recipes, models, machines;
  std::vector<Word> keys;                                  // dotted, without "="
  std::vector<Word> groups;                                // for --explain
  std::map<std::string, std::vector<std::string>> values;  // of keys with few of them
};
Words completion_words(const std::vector<std::string>& search_paths);

// `shell` is bash, zsh or fish.
std::string completion_script(const std::string& shell, const Words& words);

// One per shell; private to completion*.cc.
std::string bash_script(const Words& words);
std::string zsh_script(const Words& words);
std::string fish_script(const Words& words);

// {"--mode": pretrain, sft, ...}: the words that may follow an option or a command, or stand behind
// a key's "="; spellings with the same words share an entry. Options that take a file are not here.
struct Choice {
  std::vector<std::string> after;
  std::vector<Word> words;
};
std::vector<Choice> choices(const Words& words);
// The options that take a file, or a name or a file; and those that take a folder.
std::vector<std::string> file_options();
std::vector<std::string> folder_options();
// Every spelling of an option that takes a value.
std::vector<std::string> value_options();

}  // namespace rr::app
