// string.ts: shapes of operators on strings.
import { tensorOrUnknown } from './context.js'
import type { OperatorTable } from './row.js'

/** Rows of operators on strings. */
export const strings: OperatorTable = {
  '': {
    StringConcat: {
      shape: ctx => [tensorOrUnknown('string', ctx.broadcast([ctx.shape(0), ctx.shape(1)]))],
    },
    RegexFullMatch: { shape: ctx => [tensorOrUnknown('bool', ctx.shape(0))] },
  },
}
