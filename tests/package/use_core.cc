// package: a foreign program that uses kpd::core.
#include <cstdio>
#include <cstring>
#include <string>

#include <kpd/base/error.h>
#include <kpd/base/version.h>
#include <kpd/gradient/codec.h>

int main() {
  const kpd::gradient::Codec codec = kpd::gradient::Codec::parse("eden:bits=1");
  bool refused = false;
  try {
    kpd::gradient::Codec::parse("edem:bits=1");
  } catch (const kpd::Error& error) {
    refused = error.code() == kpd::ErrorCode::kInvalidArgument && std::strstr(error.what(), "eden") != nullptr;
  }
  std::printf("kpd %s: %s is %g bits\n", kpd::kVersion, codec.text().c_str(), codec.bits());
  return codec.bits() == 1.0 && refused ? 0 : 1;
}
