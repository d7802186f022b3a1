// tools: see line_editor.h. libedit gets its characters from us: we wait for the terminal and for signals at once, and decode
// UTF-8 whatever the locale says.
#include "line_editor.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#ifdef KPD_HAVE_LIBEDIT
#include <histedit.h>
#endif

#include "kpd/base/utf8.h"
#include "signals.h"

namespace kpd::tool {
namespace {

// Set by handlers while a line is being read: the window has another size; we are back from Ctrl-Z.
volatile std::sig_atomic_t g_resized = 0, g_continued = 0;

enum class Input { kByte, kEnd, kSignal, kRedraw };

// Bytes of standard input. What a terminal has at once is read at once, so that a pasted page costs few calls.
class Bytes {
 public:
  // Waits for a byte or a signal.
  Input next(unsigned char& byte) {
    if (at_ == size_) {
      if (const Input got = fill(); got != Input::kByte) return got;
    }
    byte = buffer_[at_++];
    return Input::kByte;
  }
  void put_back() { --at_; }
  void clear() { at_ = size_ = 0; }

 private:
  Input fill() {
    pollfd both[2] = {{0, POLLIN, 0}, {interrupt_fd(), POLLIN, 0}};
    for (;;) {
      if (interrupted()) return Input::kSignal;
      if (g_resized != 0 || g_continued != 0) return Input::kRedraw;
      if (poll(both, 2, -1) < 0) {
        if (errno == EINTR) continue;
        return Input::kEnd;
      }
      if (both[1].revents != 0) {
        // Of one that came after the look above, or that was taken before its handler, on another thread, came to its end.
        char stale[64];
        const ssize_t ignored = ::read(interrupt_fd(), stale, sizeof stale);
        static_cast<void>(ignored);
        continue;
      }
      const ssize_t n = ::read(0, buffer_, sizeof buffer_);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) return Input::kEnd;
      at_ = 0;
      size_ = static_cast<size_t>(n);
      return Input::kByte;
    }
  }

  unsigned char buffer_[4096] = {};
  size_t at_ = 0, size_ = 0;
};

// Bytes that follow the first one of a character; -1 for a byte that begins none.
int continuation_bytes(unsigned char first) {
  if (first < 0x80) return 0;
  if (first >= 0xC2 && first < 0xE0) return 1;
  if (first >= 0xE0 && first < 0xF0) return 2;
  return first >= 0xF0 && first < 0xF5 ? 3 : -1;
}

// The next character of UTF-8; U+FFFD for what is none.
Input next_character(Bytes& bytes, wchar_t& out) {
  unsigned char byte = 0;
  if (const Input got = bytes.next(byte); got != Input::kByte) return got;
  const int more = continuation_bytes(byte);
  out = 0xFFFD;
  if (more < 0) return Input::kByte;
  uint32_t c = more == 0 ? byte : byte & (0x3Fu >> more);
  for (int i = 0; i < more; ++i) {
    if (const Input got = bytes.next(byte); got != Input::kByte) return got;
    if ((byte & 0xC0) != 0x80) {
      bytes.put_back();
      return Input::kByte;
    }
    c = c << 6 | (byte & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (c >= kLeast[more] && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF)) out = static_cast<wchar_t>(c);
  return Input::kByte;
}

// Handlers that only wake who waits for the terminal, while a line is being read.
class WindowSignals {
 public:
  WindowSignals() {
    g_resized = 0;
    g_continued = 0;
    struct sigaction action = {};
    action.sa_handler = [](int signal) {
      if (signal == SIGWINCH) {
        g_resized = 1;
      } else {
        g_continued = 1;
      }
    };
    sigemptyset(&action.sa_mask);
    sigaction(SIGWINCH, &action, &resized_before_);
    sigaction(SIGCONT, &action, &continued_before_);
  }
  ~WindowSignals() {
    sigaction(SIGWINCH, &resized_before_, nullptr);
    sigaction(SIGCONT, &continued_before_, nullptr);
  }
  WindowSignals(const WindowSignals&) = delete;
  WindowSignals& operator=(const WindowSignals&) = delete;

 private:
  struct sigaction resized_before_ = {}, continued_before_ = {};
};

}  // namespace

struct LineEditor::Terminal {
  Bytes bytes;
  FILE* screen = isatty(2) != 0 ? stderr : isatty(1) != 0 ? stdout : nullptr;
  std::string prompt;

  // After a signal.
  Outcome signalled(bool typed) {
    bytes.clear();
    if (!take_interrupt()) return Outcome::kTerminated;  // by SIGTERM or SIGHUP
    return typed ? Outcome::kCleared : Outcome::kInterruptEmpty;
  }

  // With the terminal's own editing. What was typed before a Ctrl-C the terminal has dropped, and we never saw it.
  Outcome read_plain(std::string& line) {
    std::fprintf(stderr, "%s", prompt.c_str());
    std::fflush(stderr);
    for (wchar_t c = 0;;) {
      const Input got = next_character(bytes, c);
      if (got == Input::kSignal) return signalled(false);
      if (got == Input::kEnd) return line.empty() ? Outcome::kEnd : Outcome::kLine;
      if (got == Input::kRedraw) {
        g_resized = 0;
        g_continued = 0;
        continue;
      }
      if (c == L'\n') return Outcome::kLine;
      append_utf8(line, static_cast<uint32_t>(c));
    }
  }

#ifdef KPD_HAVE_LIBEDIT
  EditLine* edit = nullptr;
  HistoryW* history = nullptr;
  std::wstring wide_prompt;
  Outcome why = Outcome::kLine;  // else of a read that gives none
  bool marks_pastes = false;

  static Terminal& of(EditLine* edit) {
    void* data = nullptr;
    el_wget(edit, EL_CLIENTDATA, &data);
    return *static_cast<Terminal*>(data);
  }
  static wchar_t* show_prompt(EditLine* edit) { return of(edit).wide_prompt.data(); }
  static int read_character(EditLine* edit, wchar_t* out);
  static unsigned char paste(EditLine* edit, wint_t);
  void open();
  void close();
  Outcome read_edited(std::string& line);
#endif
};

#ifdef KPD_HAVE_LIBEDIT

namespace {

// The terminal marks what is pasted, so that its line feeds do not end the line.
constexpr const char* kMarkPastes = "\033[?2004h";
constexpr const char* kMarkNoPastes = "\033[?2004l";
constexpr std::wstring_view kPasteEnd = L"\033[201~";

// As the terminal was, for a signal that ends the program while a line is edited.
termios g_terminal;

void restore_terminal() {
  tcsetattr(0, TCSANOW, &g_terminal);
  const ssize_t ignored = write(2, kMarkNoPastes, std::string_view(kMarkNoPastes).size());
  static_cast<void>(ignored);
}

}  // namespace

int LineEditor::Terminal::read_character(EditLine* edit, wchar_t* out) {
  Terminal& terminal = of(edit);
  for (;;) {
    switch (next_character(terminal.bytes, *out)) {
      case Input::kByte:
        return 1;
      case Input::kEnd:
        terminal.why = Outcome::kEnd;
        return 0;
      case Input::kRedraw:
        if (g_continued != 0) el_wset(edit, EL_PREP_TERM, 1);
        g_resized = 0;
        g_continued = 0;
        el_resize(edit);
        el_wset(edit, EL_REFRESH);
        break;
      case Input::kSignal: {
        const LineInfoW* const info = el_wline(edit);
        terminal.why = terminal.signalled(info->lastchar != info->buffer);
        errno = EINTR;
        return -1;
      }
    }
  }
}

unsigned char LineEditor::Terminal::paste(EditLine* edit, wint_t) {
  std::wstring text;
  for (wchar_t c = 0; !text.ends_with(kPasteEnd); text += c == L'\r' ? L'\n' : c) {
    if (el_wgetc(edit, &c) != 1) return CC_EOF;
    if (c == 0) c = 0xFFFD;
  }
  text.resize(text.size() - kPasteEnd.size());
  while (text.ends_with(L'\n')) text.pop_back();
  return el_winsertstr(edit, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

void LineEditor::Terminal::open() {
  if (screen == nullptr) return;
  // libedit draws by the locale's encoding. Where the environment names none, what people type is UTF-8 all the same.
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  edit = el_init("kpd", stdin, screen, screen);
  history = history_winit();
  if (edit == nullptr || history == nullptr) return close();
  HistEventW event;
  history_w(history, &event, H_SETSIZE, 1000);
  history_w(history, &event, H_SETUNIQUE, 1);
  el_wset(edit, EL_CLIENTDATA, this);
  el_wset(edit, EL_PROMPT, show_prompt);
  el_wset(edit, EL_GETCFN, read_character);
  el_wset(edit, EL_HIST, history_w, history);
  el_wset(edit, EL_EDITOR, L"emacs");
  el_wset(edit, EL_ADDFN, L"kpd-paste", L"insert what is pasted", paste);
  const wchar_t* const keys[][2] = {{L"\\e[200~", L"kpd-paste"},    {L"\\e[3~", L"ed-delete-next-char"},
                                    {L"\\e[1~", L"ed-move-to-beg"}, {L"\\e[4~", L"ed-move-to-end"},
                                    {L"\\e[H", L"ed-move-to-beg"},  {L"\\e[F", L"ed-move-to-end"},
                                    {L"\\e[1;5D", L"ed-prev-word"}, {L"\\e[1;5C", L"em-next-word"},
                                    {L"^R", L"em-inc-search-prev"}, {L"^I", L"ed-insert"}};
  for (const auto& [key, function] : keys) el_wset(edit, EL_BIND, key, function, nullptr);
  const char* const kind = std::getenv("TERM");
  marks_pastes = kind != nullptr && *kind != 0 && std::string_view(kind) != "dumb";
  el_source(edit, nullptr);  // ~/.editrc, where people choose vi's keys
}

void LineEditor::Terminal::close() {
  if (edit != nullptr) el_end(edit);
  if (history != nullptr) history_wend(history);
  edit = nullptr;
  history = nullptr;
}

LineEditor::Outcome LineEditor::Terminal::read_edited(std::string& line) {
  wide_prompt.assign(prompt.begin(), prompt.end());  // ASCII
  why = Outcome::kLine;
  if (marks_pastes) std::fputs(kMarkPastes, screen);
  std::fflush(screen);
  el_resize(edit);  // the window may have changed while an answer was written
  if (tcgetattr(0, &g_terminal) == 0) before_forced_exit(restore_terminal);
  // Before the prompt is shown: a Ctrl-D that comes right behind it would else be the terminal's end of input, and be lost.
  el_wset(edit, EL_PREP_TERM, 1);
  int n = 0;
  const wchar_t* const text = el_wgets(edit, &n);
  before_forced_exit(nullptr);
  if (marks_pastes) std::fputs(kMarkNoPastes, screen);
  if (text == nullptr || why != Outcome::kLine) {
    const bool interrupt = why == Outcome::kCleared || why == Outcome::kInterruptEmpty;
    std::fputs(interrupt ? "^C\n" : "\n", screen);
    std::fflush(screen);
    return why == Outcome::kLine ? Outcome::kEnd : why;
  }
  std::fflush(screen);
  std::wstring typed(text, static_cast<size_t>(n));
  while (typed.ends_with(L'\n')) typed.pop_back();
  for (const wchar_t c : typed) append_utf8(line, static_cast<uint32_t>(c));
  HistEventW event;
  if (!typed.empty()) history_w(history, &event, H_ENTER, typed.c_str());
  return Outcome::kLine;
}

#endif

LineEditor::LineEditor() : terminal_(std::make_unique<Terminal>()) {
  interrupt_fd();  // exists before the first Ctrl-C
#ifdef KPD_HAVE_LIBEDIT
  terminal_->open();
#endif
}

LineEditor::~LineEditor() {
#ifdef KPD_HAVE_LIBEDIT
  terminal_->close();
#endif
}

bool LineEditor::edits() const {
#ifdef KPD_HAVE_LIBEDIT
  return terminal_->edit != nullptr;
#else
  return false;
#endif
}

LineEditor::Outcome LineEditor::read(const std::string& prompt, std::string& line) {
  line.clear();
  terminal_->prompt = prompt;
  const WindowSignals window;
#ifdef KPD_HAVE_LIBEDIT
  if (edits()) return terminal_->read_edited(line);
#endif
  return terminal_->read_plain(line);
}

}  // namespace kpd::tool
