import t from 'tap'
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectNumber,
  expectOneOf,
  expectShape,
} from '#lib/core/checks.js'

t.test('each check passes what is right and names what is wrong', async t => {
  t.doesNotThrow(() => expectInteger('rank', 1, 1))
  t.throws(() => expectInteger('rank', 0, 1), {
    code: 'ERR_ARGUMENT',
    message: 'rank must be an integer >= 1, got 0',
  })
  t.throws(() => expectInteger('gpu', 1.5, 0, 7), { message: 'gpu must be an integer in [0, 7], got 1.5' })
  t.throws(() => expectNumber('alpha', Number.NaN), { message: 'alpha must be a finite number, got NaN' })
  t.throws(() => expectNumber('dropout', 1, 0, 0.5), {
    message: 'dropout must be a number in [0, 0.5], got 1',
  })
  t.throws(() => expectOneOf('kind', 'x', ['a', 'b']), { message: "kind must be one of a, b, got 'x'" })
  t.throws(() => expectKnownOptions('options', { rnak: 1 }, ['rank']), {
    message: "options has no option 'rnak' (did you mean 'rank'?); known: rank",
  })
  t.throws(() => expectKnownOptions('options', null as never, []), { code: 'ERR_ARGUMENT' })
  t.doesNotThrow(() => expectShape('x', [5, 3], [null, 3]))
  t.throws(() => expectShape('x', [5, 4], [null, 3]), {
    code: 'ERR_SHAPE',
    message: 'x must have shape [*, 3], got [5, 4]',
  })
  t.throws(() => expectShape('x', [3], [null, 3]), { code: 'ERR_SHAPE' })
  t.ok(argumentError('x', 'a tensor', 'y'.repeat(1000)).message.length < 200)
})
