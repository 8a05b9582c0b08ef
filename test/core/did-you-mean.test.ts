// Misspelled names are answered with the known one that was probably meant.
import { Model } from 'dgx-spark'
import t from 'tap'
import { expectOneOf } from '#lib/core/checks.js'
import { didYouMean, nearestName } from '#lib/core/did-you-mean.js'

t.test('the nearest name', async t => {
  const known = ['batchSize', 'backend', 'precision', 'keep', 'lr']
  t.equal(nearestName('batchsize', known), 'batchSize', 'case')
  t.equal(nearestName('bacthSize', known), 'batchSize', 'neighbours swapped')
  t.equal(nearestName('presicion', known), 'precision')
  t.equal(nearestName('bakend', known), 'backend')
  t.equal(nearestName('rl', known), undefined, 'two letters say too little')
  t.equal(nearestName('optimizer', known), undefined)
  t.equal(nearestName('', known), undefined)
  t.equal(nearestName('x'.repeat(1e6), known), undefined, 'long names are not compared')
  t.equal(didYouMean('kepe', known), " (did you mean 'keep'?)")
})

t.test('messages name it', async t => {
  await t.rejects(Model.load('x.onnx', { batchsize: 3 } as never), {
    code: 'ERR_ARGUMENT',
    message: "options has no option 'batchsize' (did you mean 'batchSize'?); known: backend,",
  })
  t.throws(() => expectOneOf('options.precision', 'pf16', ['fp16', 'bf16']), {
    message: "options.precision must be one of fp16, bf16, got 'pf16' (did you mean 'fp16'?)",
  })
})
