// The words of the completion scripts.
#include "app/completion.h"

#include <algorithm>
#include <set>

#include "app/options.h"
#include "base/base.h"
#include "recipe/recipe.h"

namespace rr::app {
namespace {

bool is_plain(const std::string& word) {
  return !word.empty() && word.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "_.-") == std::string::npos;
}

// The few values a field can have: "linear | cosine", true and false, null where it may be unset.
std::vector<std::string> values_of(const recipe::Field& field) {
  std::vector<std::string> values;
  if (field.type.starts_with("bool")) values = {"true", "false"};
  if (field.type.starts_with("text")) {
    std::string_view rest = field.range;
    while (!rest.empty()) {
      const std::size_t bar = rest.find(" | ");
      const std::string word(rest.substr(0, bar));
      if (!is_plain(word)) return {};
      values.push_back(word);
      rest = bar == std::string_view::npos ? "" : rest.substr(bar + 3);
    }
  }
  if (!values.empty() && field.type.ends_with('?')) values.emplace_back("null");
  return values;
}

std::vector<Word> words_for(const Option& option, const Words& words) {
  std::vector<Word> all;
  switch (option.value) {
    case Value::recipe:
      return words.recipes;
    case Value::model:
      return words.models;
    case Value::machine:
      return words.machines;
    case Value::key:
      all = words.groups;
      all.insert(all.end(), words.keys.begin(), words.keys.end());
      return all;
    case Value::words:
      for (const std::string& word : words_of(option)) all.push_back({word, ""});
      return all;
    case Value::none:
    case Value::number:
    case Value::file:
    case Value::folder:
      return all;
  }
  return all;
}

template <class Wanted>
std::vector<std::string> spellings_where(const Wanted& wanted) {
  std::vector<std::string> found;
  for (const Option& option : options())
    if (wanted(option.value))
      for (const std::string& spelling : spellings(option)) found.push_back(spelling);
  return found;
}

}  // namespace

Words completion_words(const std::vector<std::string>& search_paths) {
  Words words;
  for (const recipe::RecipeInfo& info : recipe::list_recipes(search_paths)) {
    words.recipes.push_back({info.name, info.summary});
    const std::size_t mode = info.name.rfind("_pretrain");
    if (mode != std::string::npos && info.name.substr(mode) == "_pretrain")
      words.models.push_back({info.name.substr(0, mode), info.summary});
  }
  for (const std::string& name : recipe::list_machines(search_paths))
    words.machines.push_back({name, ""});
  std::set<std::string> groups;
  for (const recipe::Field& field : recipe::fields()) {
    words.keys.push_back({field.key, field.meaning});
    const std::size_t dot = field.key.find('.');
    if (dot != std::string::npos && groups.insert(field.key.substr(0, dot)).second)
      words.groups.push_back({field.key.substr(0, dot), "all keys of the group"});
    const std::vector<std::string> values = values_of(field);
    if (!values.empty()) words.values[field.key] = values;
  }
  return words;
}

std::vector<Choice> choices(const Words& words) {
  std::vector<Choice> all;
  for (const Command& command : commands()) {
    Choice choice{{command.name}, {}};
    Option option{};
    option.words = command.words;
    for (const std::string& word : words_of(option)) choice.words.push_back({word, ""});
    if (!choice.words.empty()) all.push_back(choice);
  }
  for (const Option& option : options()) {
    const std::vector<Word> found = words_for(option, words);
    if (!found.empty()) all.push_back({spellings(option), found});
  }
  std::map<std::vector<std::string>, std::size_t> places;
  for (const auto& [key, values] : words.values) {
    const auto [place, is_new] = places.emplace(values, all.size());
    if (is_new) {
      all.emplace_back();
      for (const std::string& value : values) all.back().words.push_back({value, ""});
    }
    all[place->second].after.push_back(key);
  }
  return all;
}

std::vector<std::string> file_options() {
  std::vector<std::string> found = spellings_where([](Value value) {
    return value == Value::recipe || value == Value::machine || value == Value::file;
  });
  found.insert(found.end(), {"--input", "--output"});
  return found;
}

std::vector<std::string> folder_options() {
  return spellings_where([](Value value) { return value == Value::folder; });
}

std::vector<std::string> value_options() {
  return spellings_where([](Value value) { return value != Value::none; });
}

std::string completion_script(const std::string& shell, const Words& words) {
  if (shell == "bash") return bash_script(words);
  if (shell == "zsh") return zsh_script(words);
  RR_CHECK(shell == "fish", shell);
  return fish_script(words);
}

}  // namespace rr::app
