/* How a number of a head went over the steps: a small line, and a dot at the step that is shown. */

import { element } from "./dom.js";

const [WIDTH, HEIGHT, EDGE] = [84, 18, 2];

function finite(value) {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/* One range for all heads, so that their lines can be compared. */
export function rangeOf(measure) {
  const values = (measure?.mean ?? []).flat(2).filter(finite);
  if (values.length === 0) return [0, 1];
  const [low, high] = values.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
  return high > low ? [low, high] : [low - 0.5, low + 0.5];
}

export class Spark {
  constructor() {
    this.node = element("span", "spark");
    this.canvas = element("canvas");
    this.dot = element("span", "dot");
    this.node.append(this.canvas, this.dot);
  }

  /* Values by steps, drawn where the steps lie. */
  draw(steps, values, [low, high], color) {
    Object.assign(this, { steps, values, low, high });
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this.canvas, { width: WIDTH * ratio, height: HEIGHT * ratio });
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.strokeStyle = color;
    context.lineWidth = 1.2;
    context.lineJoin = "round";
    context.beginPath();
    let down = false;
    values.forEach((value, place) => {
      if (!finite(value)) return void (down = false);
      context[down ? "lineTo" : "moveTo"](this.x(steps[place]), this.y(value));
      down = true;
    });
    context.stroke();
  }

  x(step) {
    const [first, last] = [this.steps[0], this.steps.at(-1)];
    return EDGE + ((WIDTH - 2 * EDGE) * (step - first)) / (last - first || 1);
  }

  y(value) {
    return HEIGHT - EDGE - ((HEIGHT - 2 * EDGE) * (value - this.low)) / (this.high - this.low);
  }

  mark(step) {
    const value = this.values?.[this.steps.indexOf(step)];
    this.dot.hidden = !finite(value);
    if (this.dot.hidden) return;
    this.dot.style.left = `${this.x(step)}px`;
    this.dot.style.top = `${this.y(value)}px`;
  }
}
