// tools: `kpd generate --chat` at a terminal: turn by turn, with commands, until the person leaves.
#pragma once

#include <string>

#include "generate_session.h"

namespace kpd::tool {

// Reads messages from the terminal (line_editor.h), answers each on stdout, and forgets the oldest turns when the context is
// full. With `json` an answer is one JSON line instead. Ctrl-C stops an answer; a second one leaves. Returns the exit code.
int converse(Session& session, const std::string& system, bool json);

}  // namespace kpd::tool
