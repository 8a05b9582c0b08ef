// time-limit.ts: a time limit for synchronous code. Decoders of hostile input may loop forever.
import { createContext, Script } from 'node:vm'

const context = createContext({ work: undefined as unknown })
const script = new Script('work()')

/**
 * Calls a function that does not wait for anything.
 * @throws what it throws, and an Error with code ERR_SCRIPT_EXECUTION_TIMEOUT once it has run for `milliseconds`
 */
export function withTimeLimit<T>(milliseconds: number, work: () => T): T {
  context.work = work
  try {
    return script.runInContext(context, { timeout: milliseconds }) as T
  } finally {
    context.work = undefined
  }
}
