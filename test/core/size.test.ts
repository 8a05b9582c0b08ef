// Arithmetic with symbolic sizes, and the guards that decisions leave.
import t from 'tap'
import {
  add,
  ceilDivide,
  deriveFloat,
  exactDivide,
  fixSize,
  floorDivide,
  lessThan,
  maximum,
  minimum,
  modulo,
  multiply,
  type Size,
  sameSize,
  subtract,
} from '#lib/core/size.js'
import { SizeScope } from '#lib/core/size-scope.js'

function threeSymbols() {
  const scope = new SizeScope()
  const [n, h, w] = [scope.symbol('n', 4), scope.symbol('h', 10), scope.symbol('w', 10)]
  return { scope, n, h, w }
}

t.test('equal polynomials are one object', async t => {
  const { scope, n, h, w } = threeSymbols()
  t.equal(add(n, h), add(h, n))
  t.equal(multiply(add(h, 1), add(w, 2)), add(multiply(h, w), multiply(2, h), w, 2))
  t.equal(subtract(add(n, h), h), n)
  t.equal(subtract(multiply(n, h, w), multiply(w, n, h)), 0)
  t.equal(multiply(n, 0), 0)
  t.equal(multiply(3, 4), 12)
  t.same(scope.guards, [])
})

t.test('division', async t => {
  const { scope, n, h } = threeSymbols()
  t.equal(floorDivide(multiply(6, n), 3), multiply(2, n))
  t.equal(floorDivide(add(multiply(6, n), 4), 3), add(multiply(2, n), 1))
  t.equal(exactDivide(multiply(12, n, add(h, 1)), multiply(4, add(h, 1))), multiply(3, n))
  t.equal(exactDivide(add(multiply(768, h), 768), add(multiply(12, h), 12)), 64)
  t.equal(ceilDivide(multiply(2, h), 2), h)
  t.same(scope.guards, [], 'polynomials that divide each other leave no guard')
  const half = floorDivide(add(h, -1), 2)
  t.equal(scope.evaluate([2, 9, 9])!.of(add(half, 1)), 5)
  t.equal(scope.evaluate([2, 10, 9])!.of(modulo(h, 4)), 2)
  t.equal(exactDivide(h, 3), undefined, 'the example is not divisible')
  t.equal(scope.guards.length, 1)
  t.equal(scope.evaluate([2, 9, 9]), undefined, 'sizes that are divisible need another answer')
})

t.test('values are those of the same arithmetic on numbers', async t => {
  const compute = (n: Size, h: Size, w: Size): Size[] => [
    add(multiply(n, 3, h, w), 7),
    floorDivide(subtract(add(h, 2), 3), 2),
    ceilDivide(multiply(h, w), 5),
    modulo(add(multiply(n, h), w), 7),
    minimum(multiply(2, h), multiply(3, w)),
    maximum(subtract(h, w), 0),
    floorDivide(multiply(n, h), w),
    deriveFloat('half', size => Math.fround(size / 2), h),
  ]
  const { scope, n, h, w } = threeSymbols()
  const sizes = compute(n, h, w)
  for (const [a, b, c] of [
    [4, 10, 10],
    [2, 2, 2],
    [9, 31, 17],
    [1000, 3, 640],
  ] as const) {
    const values = scope.evaluate([a, b, c])!
    t.same(
      sizes.map(size => values.of(size)),
      compute(a, b, c),
    )
  }
})

t.test('decisions leave guards', async t => {
  const { scope, n, h, w } = threeSymbols()
  t.equal(sameSize(h, add(h, 1)), false)
  t.equal(sameSize(multiply(2, h), 1), false, 'a size is at least 2')
  t.equal(lessThan(0, n), true)
  t.same(scope.guards, [], 'what follows from the terms needs none')
  t.equal(sameSize(multiply(3, n, h), multiply(3, n, w)), true)
  t.same(scope.guards, ['h + -1·w = 0'], 'factors that decide nothing are left out')
  t.equal(lessThan(n, h), true)
  t.ok(scope.evaluate([4, 10, 10]))
  t.ok(scope.evaluate([4, 7, 7]))
  t.notOk(scope.evaluate([4, 7, 8]))
  t.notOk(scope.evaluate([4, 3, 3]))
  t.notOk(scope.evaluate([1, 7, 7]), 'sizes of 0 and 1 are no symbols')
  t.equal(fixSize(n), 4)
  t.notOk(scope.evaluate([3, 7, 7]))
})

t.test('numbers of data may be negative', async t => {
  const scope = new SizeScope()
  const start = scope.symbol('start', -2, Number.NEGATIVE_INFINITY)
  t.equal(lessThan(start, 0), true)
  t.ok(scope.evaluate([-7]))
  t.notOk(scope.evaluate([7]))
})

t.test('operators are refused', async t => {
  const { h } = threeSymbols()
  t.equal(`${h}`, '10', 'a message shows the example')
  t.throws(() => (h as never) * 2, { name: 'TypeError', message: /no number/ })
  t.throws(() => (h as never) + 2, TypeError)
})
