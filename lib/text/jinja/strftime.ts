// strftime.ts: dates as Python's strftime writes them in English, for the function strftime_now.

const days = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday']
const months = ['January', 'February', 'March', 'April', 'May', 'June'].concat([
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
])

const dayOfYear = (date: Date): number =>
  (Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - Date.UTC(date.getFullYear(), 0, 1)) /
    86_400_000 +
  1

const two = (value: number): string => String(value).padStart(2, '0')

function offset(date: Date): string {
  const minutes = -date.getTimezoneOffset()
  const size = Math.abs(minutes)
  return `${minutes < 0 ? '-' : '+'}${two(Math.floor(size / 60))}${two(size % 60)}`
}

/** Parts by their letter. */
const parts: Readonly<Record<string, (date: Date) => string>> = {
  Y: date => String(date.getFullYear()),
  y: date => two(date.getFullYear() % 100),
  m: date => two(date.getMonth() + 1),
  d: date => two(date.getDate()),
  e: date => String(date.getDate()).padStart(2),
  H: date => two(date.getHours()),
  I: date => two(date.getHours() % 12 || 12),
  M: date => two(date.getMinutes()),
  S: date => two(date.getSeconds()),
  f: date => String(date.getMilliseconds() * 1000).padStart(6, '0'),
  p: date => (date.getHours() < 12 ? 'AM' : 'PM'),
  A: date => days[date.getDay()]!,
  a: date => days[date.getDay()]!.slice(0, 3),
  B: date => months[date.getMonth()]!,
  b: date => months[date.getMonth()]!.slice(0, 3),
  j: date => String(dayOfYear(date)).padStart(3, '0'),
  w: date => String(date.getDay()),
  z: offset,
  F: date => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`,
  T: date => `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`,
  '%': () => '%',
}

/** A date, in the time zone of the machine; `%-d` leaves leading zeros out, what is not known stays as it is. */
export function strftime(date: Date, format: string): string {
  return format.replace(/%(-?)([a-z%])/gi, (match, bare: string, letter: string) => {
    const part = Object.hasOwn(parts, letter) ? parts[letter]!(date) : match
    return bare === '' || part === match ? part : part.replace(/^[0 ]+(?=\d)/, '')
  })
}
