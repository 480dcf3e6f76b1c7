// Times, money and counts in words.

export function seconds(value: number): string {
  if (value < 0.0995) return `${Math.round(value * 1000)} ms`;
  if (value < 9.95) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
  if (whole < 172_800) return `${(whole / 3600).toFixed(1)} h`;
  return `${Math.round(whole / 86_400)} days`;
}

/** A mark on the time axis: `15 s`, `2:30`, `1:02:00`. */
export function axisTime(value: number): string {
  if (value < 60) return `${Number(value.toFixed(2))} s`;
  const whole = Math.round(value);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  const rest = String(whole % 60).padStart(2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

export function dollars(micros: number): string {
  if (micros === 0) return "$0";
  if (micros < 100) return "<$0.0001";
  if (micros < 1e4) return `$${(micros / 1e6).toFixed(4)}`;
  if (micros < 1e6) return `$${(micros / 1e6).toFixed(3)}`;
  return `$${(micros / 1e6).toFixed(2)}`;
}

export function count(value: number): string {
  if (value < 1000) return String(value);
  const [size, unit] = value < 1e6 ? [1e3, "k"] : [1e6, "M"];
  return (value / size).toFixed(1).replace(/\.0$/, "") + unit;
}

export function ago(then: number, now: number): string {
  const passed = Math.max(0, now - then);
  if (passed < 60) return "just now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86_400) return `${Math.floor(passed / 3600)} h ago`;
  return new Date(then * 1000).toISOString().slice(0, 10);
}

/** A day and a time on it, where the reader is. */
export function moment(at: number): string {
  const date = new Date(at * 1000);
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** `shown`: how the number is written. */
export const plural = (number: number, word: string, shown = String(number)): string => `${shown} ${word}${number === 1 ? "" : "s"}`;

/** The last part of a run's name, which tells it from others of its team. */
export const shortRun = (run: string): string => run.replace(/^.*-(?=[^-/]+)/, "");
