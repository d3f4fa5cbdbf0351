// YAML text to a tree of values, over yaml-cpp's events.
#include "recipe/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "recipe/scalar.h"
#include "recipe/utf8.h"

namespace rr::recipe {
namespace {

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxNodes = 200000;
constexpr std::uintmax_t kMaxBytes = 16 << 20;

struct Stop : std::runtime_error {
  Stop(const YAML::Mark& mark, const std::string& what)
      : std::runtime_error(what), line(mark.line) {}
  int line;
};

std::size_t count_nodes(const Node& node) {
  std::size_t count = 1;
  for (const Node& item : node.items) count += count_nodes(item);
  for (const Entry& entry : node.entries) count += 1 + count_nodes(entry.value);
  return count;
}

bool is_one_of(std::string_view text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [text](const char* word) { return text == word; });
}

// A plain scalar of a recipe: the override grammar, except where YAML is older.
Node yaml_scalar(const std::string& value) {
  if (is_one_of(value, {"yes", "Yes", "YES", "on", "On", "ON"})) {
    Node node = boolean_node(true);
    node.dialect = true;
    node.spelling = value;
    return node;
  }
  if (is_one_of(value, {"no", "No", "NO", "off", "Off", "OFF"})) {
    Node node = boolean_node(false);
    node.dialect = true;
    node.spelling = value;
    return node;
  }
  std::string body = value;
  if (!body.empty() && (body[0] == '-' || body[0] == '+')) body.erase(0, 1);
  if (is_one_of(body, {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"})) {
    Node node = plain_scalar((value[0] == '-' ? "-" : "") + body.substr(1));
    node.spelling = value;
    return node;
  }
  return plain_scalar(value);
}

class Builder : public YAML::EventHandler {
 public:
  Builder(std::string name, OriginKind kind, std::vector<Problem>* problems)
      : name_(std::move(name)), kind_(kind), problems_(problems) {}

  Node take_root() { return std::move(root_); }
  bool has_root() const { return has_root_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_root_) throw Stop(mark, "a second document starts here; a recipe is one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(mark, anchor, null_node());
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) throw Stop(mark, "an alias stands inside its own anchor");
    count_ += count_nodes(found->second);
    if (count_ > kMaxNodes) throw Stop(mark, "the aliases expand to too many values");
    add(mark, 0, found->second, true);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (tag == "?" || tag.empty()) {
      add(mark, anchor, yaml_scalar(value));
    } else if (tag == "!" || tag == "tag:yaml.org,2002:str") {
      Node node = text_node(value);
      node.quoted = true;
      add(mark, anchor, std::move(node));
    } else if (is_one_of(tag, {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float",
                               "tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"})) {
      add(mark, anchor, yaml_scalar(value));
    } else {
      throw Stop(mark, fmt::format("tag '{}' is not supported; remove it", tag));
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    Node node;
    YAML::anchor_t anchor = 0;
    YAML::Mark mark;
    bool has_key = false;
    Entry entry;
    int key_line = 0;
    std::map<std::string, int> lines;  // of the keys so far
  };

  std::string place(int line) const { return fmt::format("{}:{}", name_, line + 1); }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Kind kind) {
    if (frames_.size() >= kMaxDepth) {
      throw Stop(mark, fmt::format("values are nested more than {} deep", kMaxDepth));
    }
    if (!(tag.empty() ||
          is_one_of(tag, {"?", "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}))) {
      throw Stop(mark, fmt::format("tag '{}' is not supported; remove it", tag));
    }
    Frame frame;
    frame.node.kind = kind;
    frame.anchor = anchor;
    frame.mark = mark;
    frames_.push_back(std::move(frame));
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    if (frame.node.kind == Kind::map) merge_bases(&frame.node, frame.mark);
    add(frame.mark, frame.anchor, std::move(frame.node));
  }

  void add(const YAML::Mark& mark, YAML::anchor_t anchor, Node node, bool is_alias = false) {
    if (++count_ > kMaxNodes) throw Stop(mark, "the file has too many values");
    if (!is_alias) node.origin = {kind_, place(mark.line)};
    if (anchor != 0) anchors_[anchor] = node;
    if (frames_.empty()) {
      root_ = std::move(node);
      has_root_ = true;
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == Kind::list) {
      frame.node.items.push_back(std::move(node));
    } else if (!frame.has_key) {
      if (node.is_container()) throw Stop(mark, "a key must be a single word");
      frame.entry.key = std::move(node);
      frame.has_key = true;
      frame.key_line = mark.line;
    } else {
      add_entry(&frame, std::move(node), is_alias);
    }
  }

  void add_entry(Frame* frame, Node value, bool is_alias) {
    frame->has_key = false;
    const std::string key = frame->entry.name();
    // The place of a value is that of its key: there people look for it.
    if (!is_alias) value.origin.detail = place(frame->key_line);
    const auto [first, is_new] = frame->lines.emplace(key, frame->key_line);
    if (!is_new) {
      problems_->push_back(
          {Severity::error, key, place(frame->key_line),
           fmt::format("duplicate key '{}'; it also stands at {}", key, place(first->second)),
           "Keep one of them."});
      return;
    }
    frame->node.entries.push_back({std::move(frame->entry.key), std::move(value)});
    frame->entry = {};
  }

  void merge_bases(Node* map, const YAML::Mark& mark) {
    const auto is_merge = [](const Entry& entry) {
      return entry.key.kind == Kind::text && !entry.key.quoted && entry.key.text == "<<";
    };
    const auto found = std::find_if(map->entries.begin(), map->entries.end(), is_merge);
    if (found == map->entries.end()) return;
    const Node bases = std::move(found->value);
    map->entries.erase(found);
    std::vector<const Node*> list;
    if (bases.kind == Kind::map) list.push_back(&bases);
    for (const Node& item : bases.items) list.push_back(&item);
    for (const Node* base : list) {
      if (base->kind != Kind::map) throw Stop(mark, "'<<' wants a map or a list of maps");
      for (const Entry& entry : base->entries) {
        if (map->find(entry.name()) == nullptr) map->entries.push_back(entry);
      }
    }
    if (bases.kind != Kind::map && bases.kind != Kind::list) {
      throw Stop(mark, "'<<' wants a map or a list of maps");
    }
  }

  std::string name_;
  OriginKind kind_;
  std::vector<Problem>* problems_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Node> anchors_;
  std::size_t count_ = 0;
  Node root_;
  bool has_root_ = false;
};

void add_error(std::vector<Problem>* problems, const std::string& where, const std::string& what,
               const std::string& remedy = "") {
  problems->push_back({Severity::error, "", where, what, remedy});
}

}  // namespace

Node parse_yaml(std::string_view raw, const std::string& name, OriginKind kind,
                std::vector<Problem>* problems) {
  std::string text;
  if (const std::optional<TextFault> fault = clean_text(raw, &text)) {
    add_error(problems, fmt::format("{}:{}", name, fault->line), fault->what, fault->remedy);
    return {};
  }
  std::istringstream stream(text);
  Builder builder(name, kind, problems);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop& stop) {
    add_error(problems, fmt::format("{}:{}", name, stop.line + 1), stop.what());
    return {};
  } catch (const YAML::Exception& error) {
    add_error(problems,
              error.mark.is_null() ? name : fmt::format("{}:{}", name, error.mark.line + 1),
              fmt::format("not valid YAML: {} (column {})", error.msg, error.mark.column + 1));
    return {};
  }
  Node root = builder.take_root();
  if (!builder.has_root() || root.kind == Kind::null) {
    add_error(problems, name + ":1", "the file is empty", "A recipe is a map of groups.");
    return {};
  }
  if (root.kind != Kind::map) {
    add_error(problems, root.origin.detail,
              fmt::format("the file holds {}, not a map of keys", kind_name(root.kind)));
    return {};
  }
  return root;
}

Node read_yaml(const std::string& path, const std::string& name, OriginKind kind,
               std::vector<Problem>* problems) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    add_error(problems, name, "is a folder, not a file");
    return {};
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    add_error(problems, name, fmt::format("cannot be read: {}", std::strerror(errno)));
    return {};
  }
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > kMaxBytes) {
    add_error(problems, name,
              fmt::format("has {} bytes; a recipe has at most {}", bytes, kMaxBytes));
    return {};
  }
  std::ostringstream text;
  text << file.rdbuf();
  return parse_yaml(text.str(), name, kind, problems);
}

}  // namespace rr::recipe
