// tools: Ctrl-C. By default it ends the program at once with exit code 130; what was written beside an output is removed.
// While a DeferInterrupt lives (an output is being written, or a command ends its own way) it only raises a flag.
//
// And SIGBUS, by which the operating system says that a mapped input has become shorter or that its disk fails: one line that
// names the file, and exit code 1.
#pragma once

#include <string>

namespace kpd::tool {

// Catches SIGINT, SIGTERM, SIGBUS and, unless it is ignored, SIGHUP. Call once, before threads start.
void install_signal_handlers();

// From now on SIGTERM writes this line to stderr and ends the program with exit code 1: where SIGTERM is how a launcher says
// that the run has failed elsewhere. Call at most once.
void explain_termination(const std::string& line);

// Throws Error(kCancelled) if Ctrl-C was pressed while deferred.
void check_interrupted();
bool interrupted();
// The last signal that came while deferred; 0: none.
int interrupt_signal();

// For a conversation, where Ctrl-C ends an answer and not the program. Forgets a Ctrl-C that came while deferred and says
// whether one did; SIGTERM and SIGHUP are not forgotten.
bool take_interrupt();
// Becomes readable when one of the signals arrives, so that poll() on it and on a terminal misses none; take_interrupt()
// empties it. It may become readable once more for a signal that was taken already: interrupted() says whether there is one.
// The same descriptor at every call.
int interrupt_fd();

// Called before a signal ends the program at once, from the handler: calls only what POSIX allows in one. Null: nothing.
void before_forced_exit(void (*tidy)());

class DeferInterrupt {
 public:
  // With second_ends a second Ctrl-C ends the program at once, unless one within it that is without lives.
  explicit DeferInterrupt(bool second_ends = false);
  ~DeferInterrupt();
  DeferInterrupt(const DeferInterrupt&) = delete;
  DeferInterrupt& operator=(const DeferInterrupt&) = delete;

 private:
  bool second_ended_;  // before
};

}  // namespace kpd::tool
