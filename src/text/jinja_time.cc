// text: dates as chat templates write them: strftime in the C locale.
#include <array>
#include <cstdio>

#include "text/jinja_interpreter.h"

namespace kpd::text::jinja {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {"January", "February", "March",     "April",   "May",      "June",
                                                      "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};

bool is_leap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int day_of_year(const ChatTime& t) {
  constexpr std::array<int, 12> kBefore = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  return kBefore[static_cast<size_t>(t.month - 1)] + t.day + (t.month > 2 && is_leap(t.year) ? 1 : 0);
}

int week_day(const ChatTime& t) {  // 0: Sunday
  const int y = t.year - 1;
  return (1 + y + y / 4 - y / 100 + y / 400 + day_of_year(t) - 1) % 7;
}

std::string number(int value, int width, char flag) {
  if (flag == '-') return std::to_string(value);
  char out[24];
  std::snprintf(out, sizeof(out), flag == '_' ? "%*d" : "%0*d", width, value);
  return out;
}

// What a directive that stands for several says; empty for others.
std::string_view several(char d) {
  switch (d) {
    case 'F':
      return "%Y-%m-%d";
    case 'D':
    case 'x':
      return "%m/%d/%y";
    case 'T':
    case 'X':
      return "%H:%M:%S";
    case 'R':
      return "%H:%M";
    case 'c':
      return "%a %b %e %H:%M:%S %Y";
    default:
      return {};
  }
}

// One directive; `flag` is '-', '_' or '0' as glibc has them, 0 for none.
std::string directive(char d, char flag, const ChatTime& t) {
  const auto day = static_cast<size_t>(week_day(t)), month = static_cast<size_t>(t.month - 1);
  const int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
  const auto padded = [&](int value, int width, char usual) { return number(value, width, flag ? flag : usual); };
  if (flag && std::string_view("dejmHIkMSyl").find(d) == std::string_view::npos)
    refuse("strftime of %", flag, d, " is not supported");
  if (const std::string_view format = several(d); !format.empty()) return strftime(format, t);
  switch (d) {
    case 'Y':
      return std::to_string(t.year);
    case 'm':
      return padded(t.month, 2, '0');
    case 'd':
      return padded(t.day, 2, '0');
    case 'e':
      return padded(t.day, 2, '_');
    case 'y':
      return padded(t.year % 100, 2, '0');
    case 'H':
      return padded(t.hour, 2, '0');
    case 'I':
      return padded(hour12, 2, '0');
    case 'M':
      return padded(t.minute, 2, '0');
    case 'S':
      return padded(t.second, 2, '0');
    case 'j':
      return padded(day_of_year(t), 3, '0');
    case 'p':
      return t.hour < 12 ? "AM" : "PM";
    case 'B':
      return std::string(kMonths[month]);
    case 'b':
    case 'h':
      return std::string(kMonths[month].substr(0, 3));
    case 'A':
      return std::string(kDays[day]);
    case 'a':
      return std::string(kDays[day].substr(0, 3));
    case 'w':
      return std::to_string(day);
    case 'u':
      return std::to_string(day == 0 ? 7 : day);
    case 'Z':
    case 'z':
      return "";  // a time without a zone
    case '%':
      return "%";
    default:
      refuse("strftime of %", std::string(1, d), " is not supported");
  }
}

}  // namespace

std::string strftime(std::string_view format, const ChatTime& now) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    char flag = 0;
    if (i + 1 < format.size() && std::string_view("-_0").find(format[i + 1]) != std::string_view::npos) flag = format[++i];
    if (++i >= format.size()) refuse("strftime of a format that ends within a directive is not supported");
    out += directive(format[i], flag, now);
  }
  return out;
}

}  // namespace kpd::text::jinja
