"""Six small algorithms, written to be read. Each calls `tick` once for every step that counts.

A step is a comparison, a division or a number crossed out. Nothing here is the fastest way to do it.
"""

from collections.abc import Callable

Tick = Callable[[], None]


def linear_search(items: list[int], wanted: int, tick: Tick) -> int:
    for place, item in enumerate(items):
        tick()
        if item == wanted:
            return place
    return -1


def binary_search(items: list[int], wanted: int, tick: Tick) -> int:
    low = 0
    high = len(items) - 1
    while low <= high:
        middle = (low + high) // 2
        tick()
        if items[middle] == wanted:
            return middle
        if items[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return -1


def bubble_sort(items: list[int], tick: Tick) -> list[int]:
    found = list(items)
    for end in range(len(found) - 1, 0, -1):
        for at in range(end):
            tick()
            if found[at] > found[at + 1]:
                found[at], found[at + 1] = found[at + 1], found[at]
    return found


def merge_sort(items: list[int], tick: Tick) -> list[int]:
    if len(items) <= 1:
        return list(items)
    middle = len(items) // 2
    left = merge_sort(items[:middle], tick)
    right = merge_sort(items[middle:], tick)
    found: list[int] = []
    while left and right:
        tick()
        found.append(left.pop(0) if left[0] <= right[0] else right.pop(0))
    return found + left + right


def trial_division(most: int, tick: Tick) -> list[int]:
    found: list[int] = []
    for number in range(2, most + 1):
        prime = True
        for divisor in found:
            if divisor * divisor > number:
                break
            tick()
            if number % divisor == 0:
                prime = False
                break
        if prime:
            found.append(number)
    return found


def sieve(most: int, tick: Tick) -> list[int]:
    prime = [True] * (most + 1)
    for number in range(2, int(most**0.5) + 1):
        if prime[number]:
            for multiple in range(number * number, most + 1, number):
                tick()
                prime[multiple] = False
    return [number for number in range(2, most + 1) if prime[number]]
