// llm: the stable face of the pillar. A program that includes this header and no other of include/kpd/llm and include/kpd/text
// keeps compiling through all versions of one major number; what the headers below include for themselves may change.
//
// Here are models and their caches, generation, evaluation and tasks, a scheduler for many requests, tokenizers and chat
// templates. Guide: docs/guide/llm.md.
#pragma once

#include "kpd/base/cancel.h"     // IWYU pragma: export
#include "kpd/base/error.h"      // IWYU pragma: export
#include "kpd/io/gguf.h"         // IWYU pragma: export
#include "kpd/llm/evaluate.h"    // IWYU pragma: export
#include "kpd/llm/generate.h"    // IWYU pragma: export
#include "kpd/llm/model.h"       // IWYU pragma: export
#include "kpd/llm/scheduler.h"   // IWYU pragma: export
#include "kpd/llm/tasks.h"       // IWYU pragma: export
#include "kpd/text/chat.h"       // IWYU pragma: export
#include "kpd/text/tokenizer.h"  // IWYU pragma: export
