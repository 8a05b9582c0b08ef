// log.ts: warnings through process.emitWarning and debug lines on stderr. Independent of the configuration.
import { printable } from './printable.js'

/** Codes of the warnings this library emits; `process.on('warning')` sees them as `warning.code`. */
export type WarningCode =
  | 'SPARK_CONFIG'
  | 'SPARK_CPU_ISA'
  | 'SPARK_CUDA'
  | 'SPARK_EXPERIMENTAL'
  | 'SPARK_NO_ADAPTER'
  | 'SPARK_NO_NATIVE'
  | 'SPARK_NO_ZERO_COPY'
  | 'SPARK_SIZE_NAME'
  | 'SPARK_UNUSED_PATTERN'
  | 'SPARK_WEIGHT_CACHE'

/** How much is logged to stderr. */
export type LogLevel = 'silent' | 'debug'

const warned = new Set<string>()
let level: LogLevel = 'silent'

/** Emits a DgxSparkWarning once per (code, subject) and process. */
export function warnOnce(code: WarningCode, subject: string, message: string): void {
  const key = `${code} ${subject}`
  if (warned.has(key)) return
  warned.add(key)
  warn(code, message)
}

/** Emits a DgxSparkWarning. */
export function warn(code: WarningCode, message: string): void {
  process.emitWarning(printable(message), { type: 'DgxSparkWarning', code })
}

/** Forgets which warnings were emitted. For tests. */
export function resetWarnings(): void {
  warned.clear()
}

/** Sets what {@link debug} prints. */
export function setLogLevel(next: LogLevel): void {
  level = next
}

/** Prints a line to stderr when DGX_SPARK_LOG=debug. */
export function debug(message: string): void {
  if (level === 'debug') process.stderr.write(`dgx-spark: ${printable(message)}\n`)
}
