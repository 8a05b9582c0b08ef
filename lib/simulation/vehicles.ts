// vehicles.ts: how a car moves in a step.
import type { TracedOperand } from './traced.js'
import type { TracedValues } from './world.js'

/** How a car moves: the states after a step from those before it. */
export type Vehicle = (
  states: TracedValues,
  parameters: TracedValues,
  command: TracedValues,
  curvature: TracedOperand,
  timeStep: number,
) => TracedValues

/**
 * A point that accelerates along its lane: the acceleration follows the command with a lag of first order, the speed does not
 * become negative, and the way is that of the mean speed of the step.
 */
export const pointMass: Vehicle = ({ position, speed, acceleration }, parameters, command, _, timeStep) => {
  const wish = command.acceleration!.subtract(acceleration!)
  const next = acceleration!.add(wish.multiply(parameters.accelerationShare!))
  const faster = speed!.add(next.multiply(timeStep)).maximum(0)
  const way = speed!.add(faster).multiply(timeStep / 2)
  return { position: position!.add(way), speed: faster, acceleration: next }
}

/**
 * The kinematic bicycle with the rear axle as its reference point (Rajamani, Vehicle Dynamics and Control, 2012, section 2.2),
 * relative to a lane of curvature κ: s' = v cos ψ / (1 − d κ), d' = v sin ψ, ψ' = v tan δ / L − κ s', and in the plane. Speed as
 * {@link pointMass}; the steering angle δ follows the command with a lag of first order; angles before the step and the mean speed
 * of the step move the car.
 */
export const kinematicBicycle: Vehicle = (states, parameters, command, curvature, timeStep) => {
  const { lateralOffset, heading, steeringAngle, x, y, yaw, position } = states
  const along = pointMass(states, parameters, command, curvature, timeStep)
  const way = along.position!.subtract(position!)
  const wish = command.steeringAngle!.subtract(steeringAngle!)
  const steering = steeringAngle!.add(wish.multiply(parameters.steeringShare!))
  const turn = way.multiply(steering.tan()).divide(parameters.wheelbase!)
  const bend = lateralOffset!.multiply(curvature).negate().add(1)
  const alongLane = way.multiply(heading!.cos()).divide(bend)
  return {
    ...along,
    position: position!.add(alongLane),
    lateralOffset: lateralOffset!.add(way.multiply(heading!.sin())),
    heading: heading!.add(turn).subtract(alongLane.multiply(curvature)),
    steeringAngle: steering,
    x: x!.add(way.multiply(yaw!.cos())),
    y: y!.add(way.multiply(yaw!.sin())),
    yaw: yaw!.add(turn),
  }
}
