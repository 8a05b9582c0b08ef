// string.ts: shapes of operators on strings.
import { tensorOrUnknown } from './call.js'
import type { OperatorTable } from './row.js'

/** Rows of operators on strings. */
export const strings: OperatorTable = {
  '': {
    StringConcat: {
      shape: call => [tensorOrUnknown('string', call.broadcast([call.shape(0), call.shape(1)]))],
    },
    RegexFullMatch: { shape: call => [tensorOrUnknown('bool', call.shape(0))] },
  },
}
