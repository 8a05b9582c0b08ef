// damage.ts: what is said about damaged logs.
import type { LogDamage } from '../../data/route/damage.js'
import { printError } from '../output.js'

/** One line on stderr where parts of logs were left out. */
export function reportDamage([first]: readonly LogDamage[], damaged: number): void {
  if (!first) return
  const count = damaged === 1 ? '1 damaged part was' : `${damaged} damaged parts were`
  const { file, offset, bytes, reason } = first
  const which = damaged === 1 ? '' : 'the first '
  printError(`${count} left out: ${which}${bytes} bytes at byte ${offset} of ${file}: ${reason}`)
}
