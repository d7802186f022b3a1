// tools: lines that somebody types at a terminal. With libedit (Debian: libedit-dev) they can be edited, called back with the
// arrow keys, and pasted with all their lines at once; built without it the terminal's own editing is what there is.
#pragma once

#include <memory>
#include <string>

namespace kpd::tool {

// Of standard input, which should be a terminal. One at a time; not thread-safe. Lives inside a DeferInterrupt, so that Ctrl-C
// comes here.
class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Outcome {
    kLine,
    kEnd,             // Ctrl-D, or the terminal is gone
    kCleared,         // Ctrl-C, and what was typed so far is dropped
    kInterruptEmpty,  // Ctrl-C where nothing was typed
    kTerminated,      // SIGTERM or SIGHUP
  };
  // Shows `prompt`, ASCII, on stderr (where that is no terminal, on stdout if it is one). `line` has no line feed at its end;
  // one that was pasted may have some within. Malformed UTF-8 becomes U+FFFD. What was read can be called back.
  Outcome read(const std::string& prompt, std::string& line);
  // Whether lines can be edited: built with libedit, and a terminal to draw on.
  bool edits() const;

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace kpd::tool
