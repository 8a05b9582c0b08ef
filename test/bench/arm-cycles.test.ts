// The main loop of a disassembly: the innermost one whose instructions multiply most.
import t from 'tap'
import { mainLoop } from '../../bench/arm-cycles.js'

const disassembly = `
isa.o:     file format elf64-littleaarch64

0000000000000000 <few(float*)>:
   0:\tldr\tq0, [x0]
   4:\tfmla\tv1.4s, v0.4s, v2.4s
   8:\tadd\tx0, x0, #0x10
   c:\tcbnz\tx1, 0 <few(float*)>
  10:\tret

0000000000000014 <nested(float*)>:
  14:\tmov\tx3, #0x0                   \t// #0
  18:\tldr\tq0, [x0]
  1c:\tfmla\tv1.4s, v0.4s, v2.4s
  20:\tfmla\tv3.4s, v0.4s, v4.4s
  24:\tb.ne\t18 <nested(float*)+0x4>  // b.any
  28:\tfmla\tv5.4s, v0.4s, v4.4s
  2c:\tfmla\tv6.4s, v0.4s, v4.4s
  30:\tfmla\tv7.4s, v0.4s, v4.4s
  34:\tcbz\tx3, 14 <nested(float*)>
  38:\tret
`

t.test('the main loop of a disassembly', t => {
  t.strictSame(
    mainLoop(disassembly, 'fmla').map(text => text.replace('\t', ' ')),
    ['ldr q0, [x0]', 'fmla v1.4s, v0.4s, v2.4s', 'fmla v3.4s, v0.4s, v4.4s', 'b.ne 18 <nested(float*)+0x4>'],
    'not the outer one, which multiplies more, nor one that multiplies less',
  )
  t.strictSame(mainLoop(disassembly, 'bfmmla'), [], 'none multiplies so')
  t.end()
})
